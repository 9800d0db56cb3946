""".ci/setup makes the environment once, and again where it is not what is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A Python whose environments have itself; it writes down what installs something.
PYTHON = """#!/bin/sh
case "$*" in
  -V) echo "Python 3.11.0" ;;
  "-m venv --clear "*) echo "venv" >>"$LOG"; rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
  "-m pip install "*) echo "pip $*" | sed 's/ -m pip.* / /' >>"$LOG"; test ! -e "$BROKEN" ;;
esac
"""


class Checkout:
    """A checkout with the stand-in for Python."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / ".ci").mkdir()
        shutil.copy(ROOT / ".ci" / "setup", folder / ".ci")
        shutil.copy(ROOT / "pyproject.toml", folder)
        shutil.copytree(ROOT / ".ci" / "requirements", folder / ".ci" / "requirements")
        self.python = folder / "python"
        self.python.write_text(PYTHON, encoding="utf-8")
        self.python.chmod(0o755)
        self.broken = folder / "broken"
        self.log = folder / "log"

    def run(self, *arguments: str, code: int = 0) -> list[str]:
        """What a run of the script installs."""
        self.log.write_text("", encoding="utf-8")
        names = {"PYTHON": str(self.python), "LOG": str(self.log), "BROKEN": str(self.broken)}
        done = subprocess.run(
            [".ci/setup", *arguments],
            cwd=self.folder,
            env={**os.environ, **names},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == (code != 0), done.stderr
        return self.log.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


DEV = ["pip .ci/requirements/dev.lock", "pip ."]


def test_nothing_is_done_twice(checkout: Checkout) -> None:
    assert checkout.run("venv") == ["venv", *DEV]
    assert checkout.run("venv") == []
    assert checkout.run() == [], "what is there is enough for less"


def test_the_second_command_after_the_first(checkout: Checkout) -> None:
    locks = [f"pip .ci/requirements/{name}.lock" for name in ("run", "build")]
    assert checkout.run() == ["venv", *locks, "pip ."]
    assert checkout.run() == []
    assert checkout.run("venv") == DEV


def test_an_interrupted_installation_is_done_again(checkout: Checkout) -> None:
    checkout.broken.touch()
    assert checkout.run("venv", code=1) == ["venv", "pip .ci/requirements/dev.lock"]
    checkout.broken.unlink()
    assert checkout.run("venv") == DEV


def test_a_half_made_environment_is_made_anew(checkout: Checkout) -> None:
    (checkout.folder / ".venv" / "bin").mkdir(parents=True)
    (checkout.folder / ".venv" / "bin" / "microfold").touch()
    assert checkout.run("venv") == ["venv", *DEV]
    (checkout.folder / ".venv" / "bin" / "python").unlink()
    assert checkout.run("venv") == ["venv", *DEV]


@pytest.mark.parametrize("file", ["pyproject.toml", ".ci/requirements/dev.lock"])
def test_other_requirements_are_installed(file: str, checkout: Checkout) -> None:
    checkout.run("venv")
    with (checkout.folder / file).open("a", encoding="utf-8") as stream:
        stream.write("\n# changed\n")
    assert checkout.run("venv") == DEV


def test_an_unknown_kind_says_how(checkout: Checkout) -> None:
    assert checkout.run("everything", code=2) == []
