"""Compiled templates are kept beside their texts, or with the user's own files; nothing hangs on them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from microfold.codegen.environment import environment
from microfold.support import resources


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one template, as if all were there."""
    folder = tmp_path / "templates"
    folder.mkdir()
    (folder / "one.j2").write_text("{{ 6 * 7 }}")
    monkeypatch.setattr(resources, "template_dir", lambda: folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def render() -> str:
    return environment.__wrapped__().get_template("one.j2").render()


def test_second_process_compiles_nothing(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert render() == "42"
    monkeypatch.setattr("jinja2.environment.Environment.compile", None)
    assert render() == "42"
    assert list(templates.glob("__pycache__/*.cache"))


def test_changed_template_is_compiled_anew(templates: Path) -> None:
    assert render() == "42"
    (templates / "one.j2").write_text("{{ 6 * 8 }}")
    assert render() == "48"


@pytest.mark.parametrize("damage", [b"", b"junk", None], ids=["empty", "junk", "cut"])
def test_damaged_file_is_ignored(templates: Path, damage: bytes | None) -> None:
    assert render() == "42"
    (kept,) = (templates / "__pycache__").iterdir()
    kept.write_bytes(kept.read_bytes()[:30] if damage is None else damage)
    assert render() == "42"


def test_folder_that_cannot_be_made(templates: Path) -> None:
    (templates / "__pycache__").write_text("")
    assert render() == "42"


def test_python_is_told_to_keep_nothing_there(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert render() == "42"
    assert not (templates / "__pycache__").exists()
    monkeypatch.setattr("jinja2.environment.Environment.compile", None)
    assert render() == "42"
    (folder,) = templates.parent.glob("cache/microfold/templates")
    assert folder.stat().st_mode & 0o077 == 0


def test_user_without_a_folder(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (templates.parent / "cache").write_text("")
    assert render() == "42"


def test_user_without_a_home(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with any user id: neither the environment nor the system knows a home folder."""

    def unknown(_: int) -> None:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.chdir(templates.parent)
    assert render() == "42"
    assert [path.name for path in templates.parent.iterdir()] == ["templates"]  # no folder "~"


def test_relative_cache_folder_of_older_platformdirs(
    templates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: Path("~/.cache/microfold"))
    monkeypatch.chdir(templates.parent)
    assert render() == "42"
    assert [path.name for path in templates.parent.iterdir()] == ["templates"]
