"""Files: what may be read, and outputs that appear together or not at all."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from microfold.errors import InputError
from microfold.support import files
from microfold.support.files import read_file, write_file, write_files

OLD = {"a.c": "old a", "b.c": "old b"}
NEW = {"a.c": "new a", "b.c": "new b", "c.c": "new c"}


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_files_replace_those_that_were_there(tmp_path: Path) -> None:
    write_files(tmp_path, OLD)
    write_files(tmp_path, NEW)
    assert content(tmp_path) == NEW


@pytest.mark.parametrize("there", [{}, OLD, OLD | NEW])
@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_an_error_on_the_way_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: dict[str, str], fails_at: int
) -> None:
    write_files(tmp_path / "out", there)
    calls = 0
    replace = os.replace

    def failing(source: Path, target: Path) -> None:
        nonlocal calls
        calls += Path(source).parent.name == "new"
        if calls == fails_at and Path(source).parent.name == "new":
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(InputError, match=r"cannot write to .*: Input/output error"):
        write_files(tmp_path / "out", NEW)
    assert content(tmp_path / "out") == there


def test_file_systems_without_second_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    write_files(tmp_path, OLD)
    monkeypatch.setattr(os, "link", refusing)
    write_files(tmp_path, NEW)
    assert content(tmp_path) == NEW


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "c.c":
            write(path, data[:2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left"):
        write_files(tmp_path / "deep" / "out", NEW)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_all_files_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, interrupted)
    replace = os.replace

    def signalling(source: Path, target: Path) -> None:
        os.kill(os.getpid(), number)
        replace(source, target)

    monkeypatch.setattr(os, "replace", signalling)
    try:
        with pytest.raises(KeyboardInterrupt):
            write_files(tmp_path, NEW)
    finally:
        signal.signal(number, before)
    assert content(tmp_path) == NEW


def test_names_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    for name in ("b.c", "c.c"):
        (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=r"b\.c is a folder, .*c\.c is a folder"):
        write_files(tmp_path, NEW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.c", "c.c"]
    for name in ("", ".", "..", "/a", "a/../b", "a//b", "a/"):
        with pytest.raises(InputError, match="must have a file name"):
            write_files(tmp_path, {name: ""})
    with pytest.raises(InputError, match="File name too long"):
        write_files(tmp_path / "out", {"a": "", "b" * 300: ""})
    assert not (tmp_path / "out").exists()
    for path in ("", "/", "."):
        with pytest.raises(InputError, match="must have a file name"):
            write_file(Path(path), "")


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".microfold-left").mkdir()
    (tmp_path / ".microfold-left" / "a.c").write_text("half")
    (tmp_path / ".mine").mkdir()
    write_files(tmp_path, OLD)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine", "a.c", "b.c"]


def test_processes_that_write_into_one_folder_take_turns(tmp_path: Path) -> None:
    """Whoever is last, the files are those of one of them."""
    code = (
        "import sys; from pathlib import Path; from microfold.support.files import write_files\n"
        "for i in range(25): write_files(Path(sys.argv[1]), {f'{n}.c': sys.argv[2] * 999 for n in range(9)})"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out")]
    running = [subprocess.Popen([*command, text]) for text in "abc"]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert len(set(content(tmp_path / "out").values())) == 1
    assert len(content(tmp_path / "out")) == 9


def test_inputs_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "large").write_bytes(bytes(100))
    for path, message in (
        (tmp_path / "pipe", "it is a pipe"),
        (Path("/dev/zero"), "it is a device"),
        (tmp_path, "it is a folder"),
        (tmp_path / "loop", "symbolic links"),
        (tmp_path / "missing", "No such file"),
        (tmp_path / "large" / "x", "Not a directory"),
        (Path("a" * 5000), "File name too long"),
        (Path("\0"), "null"),
    ):
        with pytest.raises(InputError, match=message):
            read_file(path)
    with pytest.raises(InputError, match="the limit is 10 bytes; it has 100"):
        read_file(tmp_path / "large", 10)


def test_the_reason_of_an_error_without_one() -> None:
    assert files.reason(OSError("it is so")) == "it is so"


TREE = {"a.c": "a", "src/b.c": "b", "src/deep/c.c": "c"}


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


def test_names_may_have_folders(tmp_path: Path) -> None:
    write_files(tmp_path, TREE)
    assert tree(tmp_path) == TREE
    write_files(tmp_path, {"a.c": "new"}, obsolete=["src/deep/c.c", "never/there.c"])
    assert tree(tmp_path) == {"a.c": "new", "src/b.c": "b"}
    assert not (tmp_path / "src" / "deep").exists()
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("fails_at", [1, 2])
def test_an_error_on_the_way_keeps_what_is_obsolete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    write_files(tmp_path, TREE)
    calls = 0
    unlink = Path.unlink

    def failing(path: Path, missing_ok: bool = False) -> None:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise OSError(errno.EIO, "Input/output error")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", failing)
    with pytest.raises(InputError, match="Input/output error"):
        write_files(tmp_path, {"new/folder/d.c": "d"}, obsolete=["a.c", "src/b.c"])
    assert tree(tmp_path) == TREE
    assert not (tmp_path / "new").exists()


def test_folders_in_names_are_folders(tmp_path: Path) -> None:
    (tmp_path / "src").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(InputError, match=r"src is a file, .*link is a link"):
        write_files(tmp_path, {"src/a.c": "", "link/b.c": ""})
    assert (tmp_path / "src").read_text() == "mine"
    assert list((tmp_path / "elsewhere").iterdir()) == []
