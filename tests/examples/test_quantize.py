"""The example that quantises: the C has the reference's outputs, within 1 % of the float model's accuracy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.makefiles import ARM_TOOLS, EXAMPLES, HOST_TOOLS, expected_output, make
from tests.needs import need_modules

FOLDER = EXAMPLES / "quantize"


def correct(text: str) -> dict[str, int]:
    """Correct images by step."""
    return {name: int(count) for name, count in re.findall(r"^(.+?): +(\d+) of 360 correct", text, re.M)}


@pytest.mark.slow
@pytest.mark.parametrize(("goal", "tools"), [("host", HOST_TOOLS), ("run", ARM_TOOLS)])
def test_accuracy_at_each_step(goal: str, tools: tuple[str, ...], tmp_path: Path) -> None:
    """Ranges that LiteRT measures can depend on the processor, and with them the README's figures of int8."""
    need_modules("ai_edge_quantizer", "tflite_micro")
    printed = make("quantize", goal, tmp_path, tools)
    stated = expected_output("quantize", "float32, LiteRT")
    found, expected = correct(printed), correct(stated)
    assert list(found) == list(expected)
    assert found["float32, LiteRT"] == expected["float32, LiteRT"]
    assert found["int8, TFLM"] == found["int8, C on this core"] >= 0.99 * found["float32, LiteRT"]
    assert printed.splitlines()[-1] == stated.splitlines()[-1] == "outputs of C and TFLM: 360 of 360 equal"
    assert (tmp_path / "quantization.html").is_file()


@pytest.mark.slow
def test_training_gives_the_model(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is a package of this example only")
    need_modules("ai_edge_litert")
    for name in ("train.py", "float_model.py"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    shown = subprocess.check_output([sys.executable, "train.py"], cwd=tmp_path, text=True)
    count = re.search(r"trained: (\d+) of 360", shown)
    assert count is not None and int(count[1]) >= 350
    for name in ("samples.npy", "test_images.npy", "test_labels.npy"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()
