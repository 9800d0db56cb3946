"""Classes of the samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from microfold.errors import InputError
from microfold.ir.types import DType, TensorType
from microfold.quantization.labels import read_classes

SCORES = TensorType(DType.FLOAT32, (1, 3))


def test_classes_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.array([[2], [0]]))
    (tmp_path / "y.txt").write_text("2\n0\n", encoding="utf-8")
    assert (
        read_classes(tmp_path / "y.npy", 2, SCORES) == read_classes(tmp_path / "y.txt", 2, SCORES) == (2, 0)
    )


@pytest.mark.parametrize(
    ("text", "message"), [("1 2 0", "2 integers"), ("0 3", "from 0 to 2"), ("0 cat", "number of a class")]
)
def test_wrong_classes_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "y.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_classes(tmp_path / "y.txt", 2, SCORES)


def test_an_output_must_have_scores(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a score for each class"):
        read_classes(tmp_path / "y.txt", 2, TensorType(DType.FLOAT32, (1, 4, 3)))
