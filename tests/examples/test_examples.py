"""The examples build, run, and print what their READMEs say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import need_modules, need_tools

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HOST_TOOLS = ("make", "cc")
ARM_TOOLS = ("make", "arm-none-eabi-gcc", "qemu-system-arm")


def make(example: str, goal: str, build: Path, tools: tuple[str, ...]) -> str:
    """What `make goal` prints, without the commands; the built files go to `build`."""
    need_tools(*tools)
    command = ["make", "--silent", goal, f"BUILD={build}", f"PYTHON={sys.executable}"]
    command.append(f"MICROFOLD={sys.executable} -m microfold")
    # The package under test, also where it is not installed.
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
    result = subprocess.run(
        command,
        cwd=EXAMPLES / example,
        env=environment,
        stdin=subprocess.DEVNULL,
        text=True,
        capture_output=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def expected_output(example: str, first_line: str) -> str:
    """The block in the example's README that begins with `first_line`."""
    blocks = re.findall(r"^```text\n(.*?)^```$", (EXAMPLES / example / "README.md").read_text(), re.M | re.S)
    (block,) = [block for block in blocks if block.startswith(first_line)]
    return block


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
