"""Small files that ask for much work take little time and memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.growth.hostile import FILES


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read from /proc")
def test_small_files_take_little_time_and_memory() -> None:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "tests.growth.hostile"]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(result.stdout.splitlines()) == len(FILES)
