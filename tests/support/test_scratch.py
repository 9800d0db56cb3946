"""Temporary folders: removed behind errors, and by the next run after a run that was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from microfold.errors import ToolError
from microfold.support.scratch import ScratchFolder, scratch_folder

KILLED = """
import os, signal
from microfold.support.scratch import ScratchFolder
folder = ScratchFolder()
(folder.path / "file").write_text("")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_removed_behind_an_error(temporary: Path) -> None:
    def fail() -> None:
        with scratch_folder() as folder:
            assert folder.parent == temporary
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(temporary.iterdir()) == []


def test_a_killed_process_is_cleaned_up_after(temporary: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = temporary.iterdir()
    mine, other = ScratchFolder(), temporary / "microfold-notes"
    other.mkdir()
    assert not left.exists()
    ScratchFolder().close()
    assert mine.path.exists()
    assert other.exists()
    mine.close()
    assert list(temporary.iterdir()) == [other]


def test_no_place_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    with pytest.raises(ToolError, match="TMPDIR"):
        ScratchFolder()
