"""A wheel, in a fresh environment, builds a model: templates and targets come along."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_wheel_builds_a_model(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(wheels), str(ROOT)],
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    (wheel,) = wheels.glob("*.whl")
    environment = tmp_path / "env"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], check=True, cwd=tmp_path)
    model = ROOT / "tests" / "models" / "made" / "cnn_int8.tflite"
    command = [environment / "bin" / "microfold", "build", model, "--target", "cortex-m4", "-o", "out"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out" / "cnn_int8.c").is_file()
    code = (
        "import microfold, numpy as np; print(microfold.compile(r'%s')(np.zeros((1,8,8,1), np.int8)).shape)"
    )
    result = subprocess.run(
        [python, "-c", code % model], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "(1, 10)", result.stderr
