"""The package `tflite` is the same to whoever imports it, and has what is asked for alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What a process has that asks for something, and how many modules of the package it imported.
SCRIPT = """
import sys
import microfold.frontend
import tflite
{code}
print(sum(name.startswith("tflite.") for name in sys.modules))
"""


def run(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(code=code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_modules_come_when_asked_for() -> None:
    assert run("pass") == ["0"]
    assert run("print(tflite.BuiltinOperator.CONV_2D)") == ["3", "1"]


def test_modules_are_hidden_by_their_classes() -> None:
    code = "from tflite.Tensor import Tensor; import tflite.Padding"
    code += "; print(tflite.Tensor is Tensor, tflite.Padding.VALID)"
    assert run(code) == ["True", "1", "2"]


@pytest.mark.parametrize(
    "code",
    [
        "print(tflite.AddOptionsStart.__name__)",  # in no module of that name
        "from tflite import *; print(AddOptionsStart.__name__)",
        "tflite.Tensor; from tflite import AddOptionsStart; print(AddOptionsStart.__name__)",
    ],
)
def test_all_else_imports_all(code: str) -> None:
    name, modules = run(code)
    assert name == "AddOptionsStart"
    assert int(modules) > 150


def test_what_is_missing() -> None:
    assert run("print(hasattr(tflite, 'Nothing'), hasattr(tflite, '__version__'))")[:2] == ["False", "True"]


def test_a_package_that_is_there_stays() -> None:
    code = "import tflite, microfold.frontend; print(type(tflite).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["module"]
