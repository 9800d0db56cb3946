"""Type checkers accept a user's script, and find its mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import need_modules

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("user_script.py").read_text(encoding="utf-8")
# Mistakes that checkers must find: an unknown option, wrong values and types, a missing target.
MISTAKES = """
import microfold

microfold.compile("model.tflite", speed=True)
microfold.build("model.tflite", "host", optimize="fast")
microfold.verify("model.tflite", ram="64K")
microfold.report("model.tflite")
microfold.compile(7)
microfold.quantize("model.tflite", "x.npy", scheme="int3")
microfold.quantize("model.tflite", "x.npy", sample=3)
"""
LINES = {4, 5, 6, 7, 8, 9, 10}


def check(command: list[str], folder: Path, text: str) -> tuple[str, set[int]]:
    """Return the output of a type checker, and the lines with errors."""
    (folder / "script.py").write_text(text, encoding="utf-8")
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": paths, "MYPYPATH": str(ROOT)}
    command = [sys.executable, "-m", *command, "script.py"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=500
    )
    lines = [line for line in done.stdout.splitlines() if "script.py:" in line and "error" in line]
    numbers = {int(line.split("script.py:")[1].split(":")[0]) for line in lines}
    assert bool(numbers) == bool(done.returncode), done.stdout + done.stderr
    return done.stdout, numbers


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["pyright", "mypy"])
def test_type_checkers_read_the_interface(checker: str, tmp_path: Path) -> None:
    need_modules(checker)
    if checker == "pyright":
        settings = {"typeCheckingMode": "strict", "pythonVersion": "3.10", "extraPaths": [str(ROOT)]}
        (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
        command = ["pyright", "--pythonpath", sys.executable]
    else:
        command = ["mypy", "--strict", "--follow-imports=silent", "--python-version", "3.10"]
    shown, wrong = check(command, tmp_path, SCRIPT)
    assert wrong == set(), shown
    shown, wrong = check(command, tmp_path, MISTAKES)
    assert wrong == LINES, shown
