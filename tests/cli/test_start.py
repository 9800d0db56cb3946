"""What commands import, and how much they do: the time of short ones is that of what they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Two operators: a product of matrices, and what it gives as probabilities.
TWO_OPERATORS = """graph @two(%x: int8[1,4] q(0.1, 3)) -> (%y) {
  %w = constant int8[2,4] q(0.01, 0) [1, 2, 3, 4, 5, 6, 7, 8]
  %b = constant int32[2] q(0.001, 0) [100, -100]
  %f: int8[1,2] q(0.05, 1) = fully_connected(%x, %w, %b)
  %y: int8[1,2] q(0.00390625, -128) = softmax(%f) {beta=1.0}
}
"""
# A tenth more than there were when this was written.
MOST_MODULES = 690
MOST_CALLS = 820_000
MOST_CALLS_OF_SHORT = 325_000
# Runs a command, and prints on the error stream what that took.
COUNTED = """
import cProfile, json, sys

profile = cProfile.Profile()
profile.enable()
from microfold.cli.process import run_process
status = run_process(sys.argv[1:])
profile.disable()
calls = sum(each.callcount for each in profile.getstats())
print(json.dumps({"status": status, "calls": calls, "modules": sorted(sys.modules)}), file=sys.stderr)
"""


def counted(*arguments: object) -> tuple[int, set[str]]:
    """The calls of functions that a command makes, and the modules that are there in the end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", COUNTED, *map(str, arguments)]
    for _ in range(2):  # modules and templates are compiled once
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    found: Any = json.loads(done.stderr.splitlines()[-1])
    assert found["status"] == 0
    return found["calls"], set(found["modules"])


def test_what_a_build_does(tmp_path: Path) -> None:
    (tmp_path / "two.mf").write_text(TWO_OPERATORS)
    command = ("build", tmp_path / "two.mf", "--target", "cortex-m4", "--ram", 1000, "-o", tmp_path / "out")
    calls, modules = counted(*command)
    own = {name for name in modules if name.startswith("microfold.")}
    kernels = {name.split(".")[2] for name in own if name.startswith("microfold.kernels.")}
    assert kernels.isdisjoint({"depthwise_conv2d", "recurrent", "signal", "movement", "transpose_conv2d"})
    # What runs programs, validates values and lists other passes is for other commands.
    assert own.isdisjoint({"microfold.host.session", "microfold.simulate.run", "microfold.export"})
    assert "pydantic" not in modules
    assert "microfold.transform.requested.change_batch" not in modules
    assert len(own) < MOST_MODULES
    assert calls < MOST_CALLS


@pytest.mark.parametrize("arguments", [("--help",), ("build", "--help"), ("targets",), ("--version",)])
def test_what_short_commands_do(arguments: tuple[str, ...]) -> None:
    calls, modules = counted(*arguments)
    assert modules.isdisjoint({"numpy", "tflite", "jinja2", "pydantic", "microfold.compiler"})
    assert calls < MOST_CALLS_OF_SHORT
