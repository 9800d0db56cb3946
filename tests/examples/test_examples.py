"""The examples build, run, and print what their READMEs say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.makefiles import ARM_TOOLS, EXAMPLES, HOST_TOOLS, expected_output, make
from tests.needs import need_modules


@pytest.mark.parametrize(
    ("goal", "tools"),
    [pytest.param(*goal, marks=pytest.mark.slow) for goal in (("host", HOST_TOOLS), ("run", ARM_TOOLS))],
)
def test_digits(goal: str, tools: tuple[str, ...], tmp_path: Path) -> None:
    output = make("digits", goal, tmp_path, tools)
    assert output.endswith(expected_output("digits", "label"))
    assert "compiled model: 357 of 360 correct (99.17 %)" in output
    assert "outputs equal bit for bit: 360 of 360" in output


@pytest.mark.parametrize(
    ("goal", "tools"),
    [("run", HOST_TOOLS), pytest.param("m4", ARM_TOOLS, marks=pytest.mark.slow)],
)
def test_sine(goal: str, tools: tuple[str, ...], tmp_path: Path) -> None:
    assert make("sine", goal, tmp_path, tools).endswith(expected_output("sine", "    x"))


@pytest.mark.parametrize("runtime", ["litert", "tflite-micro"])
def test_accuracy_of_the_original_model(runtime: str) -> None:
    module = {"litert": "ai_edge_litert", "tflite-micro": "tflite_micro"}[runtime]
    need_modules(module)
    command = [sys.executable, "evaluate.py", "--runtime", runtime]
    output = subprocess.check_output(command, cwd=EXAMPLES / "digits", text=True)
    assert output.splitlines() == [
        f"{runtime}: 357 of 360 correct (99.17%)",
        "equal to test_outputs.npy: 3600 of 3600 values",
    ]
