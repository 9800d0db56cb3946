"""Packages on disk: whole, replaced by the next export, and nothing of others is lost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from microfold.errors import InputError
from microfold.export.publish import LISTING, publish

FILES = {"README.md": "read", "src/a.c": "code", "src/b.c": b"\x00bytes"}


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != LISTING]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def as_bytes(files: dict[str, str | bytes]) -> dict[str, bytes]:
    return {name: data if isinstance(data, bytes) else data.encode() for name, data in files.items()}


def test_a_package_replaces_the_one_before(tmp_path: Path) -> None:
    publish(tmp_path, FILES)
    assert content(tmp_path) == as_bytes(FILES)
    (tmp_path / "src" / "mine.c").write_text("mine")
    (tmp_path / "build").mkdir()
    after = {"README.md": "other", "code/a.c": "code"}
    publish(tmp_path, after)
    assert content(tmp_path) == as_bytes({**after, "src/mine.c": "mine"})
    (tmp_path / "src" / "mine.c").unlink()
    publish(tmp_path, after)
    assert (tmp_path / LISTING).read_text().count("\n") == 2


def test_files_of_others_are_kept(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.c").write_text("code")  # the same bytes: nothing would be lost
    with pytest.raises(InputError, match=r"README\.md is not from an export: choose another --output"):
        publish(tmp_path, FILES)
    assert content(tmp_path) == {"README.md": b"mine", "src/a.c": b"code"}


@pytest.mark.parametrize("name", ["src/a.c", "src/b.c"])
def test_what_was_changed_is_kept(tmp_path: Path, name: str) -> None:
    publish(tmp_path, FILES)
    (tmp_path / name).write_text("changed by hand")
    for files in (FILES | {name: "new"}, {"README.md": "read"}):
        with pytest.raises(InputError, match=f"{name} was changed since it was exported"):
            publish(tmp_path, files)
    assert (tmp_path / name).read_text() == "changed by hand"


def test_a_listing_of_others_is_none(tmp_path: Path) -> None:
    (tmp_path / LISTING).write_text("my notes\n")
    with pytest.raises(InputError, match=f"{LISTING} is not from an export"):
        publish(tmp_path, FILES)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / LISTING).write_text(f"{'0' * 64}  ../{LISTING}\n{'0' * 64}  /etc/hosts\n")
    with pytest.raises(InputError, match="is not from an export"):
        publish(tmp_path / "out", FILES)


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "src" / "a.c").mkdir(parents=True)
    with pytest.raises(InputError, match=r"a\.c is a folder"):
        publish(tmp_path, FILES)
    assert content(tmp_path) == {}


def test_a_full_disk_leaves_the_package_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "b.c":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    publish(tmp_path / "old", FILES)
    monkeypatch.setattr(Path, "write_bytes", full)
    for folder in ("old", "new"):
        with pytest.raises(InputError, match="No space left"):
            publish(tmp_path / folder, {"c/b.c": "new", "README.md": "new"})
    assert content(tmp_path / "old") == as_bytes(FILES)
    assert not (tmp_path / "new").exists()
