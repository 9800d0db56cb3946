"""Preprocessing by options and by the model's metadata."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import InputError
from microfold.quantization.preprocessing import Preprocessing, read_preprocessing, with_options
from tests.needs import need_modules
from tests.quantization.models import dense, image_metadata, with_metadata

METADATA = image_metadata([127.5], [127.5], [-1.0], [1.0])


def test_metadata_are_read() -> None:
    need_modules("ai_edge_litert")
    found, ignored = read_preprocessing(dense(metadata=METADATA), 2)
    assert ignored == ""
    assert found[0] == Preprocessing((127.5,), (127.5,), (-1.0,), (1.0,), source="the model's metadata")
    assert found[1] == Preprocessing()
    np.testing.assert_array_equal(found[0].apply(np.array([[0, 255]], np.uint8)), [[-1, 1]])


def test_a_file_without_metadata_states_nothing() -> None:
    assert read_preprocessing(dense(), 1) == ((Preprocessing(),), "")


def test_damaged_metadata_are_ignored() -> None:
    """Whatever a byte is replaced by, there is a result, or a reason."""
    need_modules("ai_edge_litert")
    reasons = set()
    for position in range(len(METADATA)):
        for value in (0, 0x7F, 0xFF):
            changed = METADATA[:position] + bytes([value]) + METADATA[position + 1 :]
            _, ignored = read_preprocessing(_model_with(changed), 1)
            reasons.add(ignored)
    assert reasons == {"", "the metadata of the model cannot be read"}


_MODEL: list[bytes] = []


def _model_with(metadata: bytes) -> bytes:
    """A model with these metadata: those in a model are replaced, which is faster than to write it anew."""
    if not _MODEL:
        _MODEL.append(with_metadata(dense(), METADATA))
    assert _MODEL[0].count(METADATA) == 1
    return _MODEL[0].replace(METADATA, metadata)


def test_options_replace_the_metadata() -> None:
    found = with_options(Preprocessing((1.0,), (2.0,), source="the model's metadata"), [0.0], [255.0])
    assert (found.mean, found.std, found.forced) == ((0.0,), (255.0,), True)
    with pytest.raises(InputError, match="--std is missing"):
        with_options(Preprocessing(), [0.0], [])


def test_mean_and_std_must_fit() -> None:
    assert "one for each of 3 channels" in Preprocessing((0.0, 0.0), (1.0,)).fault(3)
    assert "std not 0" in Preprocessing((0.0,), (0.0,)).fault(3)
    assert Preprocessing((0.0,) * 3, (1.0,)).fault(3) == ""
