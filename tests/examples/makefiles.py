"""Running the Makefiles of the examples, and what their READMEs say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.needs import need_tools

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
