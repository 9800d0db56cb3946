"""The page for the first five minutes, followed literally."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import need_tools

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "start.md"

# What sets up the environment that the test runs in.
SETUP = (".ci/setup\n", ". .venv/bin/activate\n")
CROSS_COMPILER = "arm-none-eabi-gcc"


def folder_with_microfold(folder: Path) -> dict[str, str]:
    """A folder with what the page's commands read; the environment in which they run."""
    shutil.copytree(ROOT / "examples" / "digits", folder / "examples" / "digits")
    command = folder / "bin" / "microfold"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m microfold "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


@pytest.mark.slow
def test_the_page_is_followed(tmp_path: Path) -> None:
    """Files are written and commands run, in order; a block of text is what the last command prints."""
    need_tools("cc")
    environment = folder_with_microfold(tmp_path)
    printed = ""
    found = re.findall(
        r"^(?:\*\*`(\S+)`\*\*:\n\n)?```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S
    )
    assert [kind for _, kind, _ in found].count("sh") == 9
    assert [kind for _, kind, _ in found].count("text") == 2
    for file, kind, text in found:
        if file:
            (tmp_path / file).write_text(text, encoding="utf-8")
        elif kind == "text":
            assert printed == text
        else:
            assert kind == "sh"
            skipped = text in SETUP or (text.startswith(CROSS_COMPILER) and not shutil.which(CROSS_COMPILER))
            if not skipped:
                done = subprocess.run(
                    ["bash", "-ec", text],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert done.returncode == 0, f"{text}{done.stdout}{done.stderr}"
                printed = done.stdout
    assert (tmp_path / "build" / "start" / "report.html").stat().st_size > 10_000
