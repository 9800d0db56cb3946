"""File access: checked reads of whole files, and atomic writes of sets of files."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Generator, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from microfold.errors import InputError
from microfold.support.signals import deferred_signals

if os.name == "posix":
    import fcntl

# A .tflite file uses signed 32-bit offsets (FlatBuffers). No other kind of input is as large.
LARGEST_INPUT = (1 << 31) - 1
_STAGING = ".microfold-"


def read_file(path: Path, largest: int = LARGEST_INPUT) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        InputError: the file cannot be read, is not a regular file, or is too large.
    """
    with open_file(path) as (file, size):
        return read_whole(file, path, size, largest)


def read_whole(file: BinaryIO, path: Path, size: int, largest: int) -> bytes:
    """Return all bytes of an open file; see `read_file`."""
    if size > largest:
        raise InputError(f"{path} is too large: the limit is {largest:,} bytes; it has {size:,}")
    # Read only the size of the file, because a buffer of this size is allocated first.
    content = file.read(size or largest)
    if content is None:  # type: ignore[reportUnnecessaryComparison]  # files in /proc can block
        raise BlockingIOError(errno.EAGAIN, "it has nothing to read yet")
    return content


@contextlib.contextmanager
def open_file(path: Path) -> Generator[tuple[BinaryIO, int]]:
    """Open a regular file for reading, and yield it with its size in bytes.

    Raises:
        InputError: the file cannot be opened or read, or is not a regular file.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"cannot read {path}: it must be a file; it is {_kind(status.st_mode)}")
            yield file, status.st_size
    except OSError as error:
        if isinstance(error, IsADirectoryError):
            raise InputError(f"cannot read {path}: it must be a file; it is a folder") from None
        raise InputError(f"cannot read {path}: {reason(error)}") from None
    except ValueError as error:  # a NUL in the path
        raise InputError(f"cannot read {str(path)!r}: {error}") from None


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking, so that a named pipe without a writer can be rejected."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISREG, "a file"),
        (stat.S_ISLNK, "a link"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for test, name in kinds if test(mode)), "a device")


_ADVICE = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EACCES: "check the permissions",
    errno.EPERM: "check the permissions",
    errno.ENAMETOOLONG: "choose a shorter one",
    errno.ENOSPC: "make room, or choose another disk",
    errno.EROFS: "choose a folder that can be written",
}


def reason(error: OSError) -> str:
    """Return the reason of a system error, and a remedy."""
    advice = _ADVICE.get(error.errno or 0, "")
    return "; ".join(filter(None, (error.strerror or str(error), advice)))


def write_file(path: Path, content: str | bytes) -> None:
    """Write one file atomically; see `write_files`."""
    if path.name == "" or str(path).endswith(os.sep):
        raise InputError(f"an output must have a file name; it is {str(path)!r}")
    write_files(path.parent, {path.name: content})


def write_files(folder: Path, files: Mapping[str, str | bytes], obsolete: Collection[str] = ()) -> None:
    """Write all files to a folder, or none if an error occurs. The folder is created if necessary.

    All files are completed under temporary names before the first one is renamed. If a file cannot be
    renamed, the previous files are restored. Signals are deferred until all files are in place. A lock
    serialises processes that write to the same folder.

    Args:
        files: content by name; text is written as UTF-8. A name can have folders, e.g. ``src/kws.c``.
        obsolete: names of files to remove, if they exist. Folders that become empty are also removed.

    Raises:
        InputError: the folder cannot be written, or a name belongs to something other than a file.
    """
    made: list[Path] = []
    lock: int | None = None
    try:
        lock = _make_and_lock(folder, made)
        with deferred_signals():
            _check_names(folder, [*files, *obsolete])
            _remove_abandoned(folder, lock)
            _replace(folder, files, obsolete, made)
            for name in obsolete:
                _remove_empty(folder / parent for parent in _parents(name))
    except BaseException as error:
        _remove_empty(reversed(made))  # folders with files of other processes remain
        if isinstance(error, UnicodeEncodeError):
            raise InputError(f"cannot write to {folder}: a name cannot be encoded as UTF-8") from None
        if isinstance(error, (OSError, ValueError)):
            text = reason(error) if isinstance(error, OSError) else str(error)
            raise InputError(f"cannot write to {str(folder)!r}: {text}") from None
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _parents(name: str) -> list[PurePosixPath]:
    return list(PurePosixPath(name).parents)[:-1]


def _remove_empty(folders: Iterable[Path]) -> None:
    for path in folders:
        with contextlib.suppress(OSError):  # not empty
            path.rmdir()


def _make_and_lock(folder: Path, made: list[Path]) -> int | None:
    """Create and lock a folder. Return the lock, or None if folders cannot be locked.

    Args:
        made: list to which the created folders are appended.
    """
    while True:
        with contextlib.suppress(FileNotFoundError):
            folder.stat()  # fails early for an invalid path
        for path in reversed([folder, *folder.parents]):
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                made.append(path)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is not a folder")
        if os.name != "posix":
            return None
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:  # e.g. on network file systems
            os.close(lock)
            return None
        except BaseException:
            os.close(lock)
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), folder.stat()):
                return lock
        # In the meantime, another process has removed the folder after a failed write.
        os.close(lock)


def _check_names(folder: Path, names: Iterable[str]) -> None:
    """Check that each name is free or a file, and that each of its folders is free or a folder."""
    taken: dict[str, None] = {}
    for name in names:
        if not is_inside(name):
            raise InputError(f"an output must have a file name; it is {name!r}")
        for path, fits in [(name, _is_file), *((parent, stat.S_ISDIR) for parent in _parents(name))]:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # the outer folder is reported
                mode = (folder / path).lstat().st_mode
                if not fits(mode):
                    taken[f"{folder / path} is {_kind(mode)}"] = None
    if taken:
        raise InputError(f"--output must replace only files; {', '.join(taken)}: choose another --output")


def is_inside(name: str) -> bool:
    """Return whether a relative path, separated by ``/``, stays in the folder."""
    return bool(name) and all(
        part not in ("", ".", "..") and Path(part).name == part for part in name.split("/")
    )


def _is_file(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _remove_abandoned(folder: Path, lock: int | None) -> None:
    """Remove the temporary files of killed processes. The lock ensures that no other process is active."""
    for path in folder.glob(f"{_STAGING}*") if lock is not None else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def _replace(
    folder: Path, files: Mapping[str, str | bytes], obsolete: Collection[str], made: list[Path]
) -> None:
    staging = Path(tempfile.mkdtemp(dir=folder, prefix=_STAGING))
    try:
        old = staging / "old"
        new = staging / "new"
        for name in [*files, *obsolete]:
            (old / name).parent.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            data = content.encode("utf-8") if isinstance(content, str) else content
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(data)
        for name in files:
            for parent in reversed(_parents(name)):
                with contextlib.suppress(FileExistsError):
                    (folder / parent).mkdir()
                    made.append(folder / parent)
        placed: list[str] = []
        try:
            for name in [*files, *obsolete]:
                placed.append(name)
                _keep(folder / name, old / name)
                if name in files:
                    os.replace(new / name, folder / name)
                else:
                    (folder / name).unlink(missing_ok=True)
        except BaseException:
            for name in placed:
                if name in files and not (new / name).exists():
                    (folder / name).unlink(missing_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    os.replace(old / name, folder / name)
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _keep(path: Path, copy: Path) -> None:
    """Hard-link a file, if it exists, to a second name; without hard links, rename it."""
    with contextlib.suppress(FileNotFoundError):
        try:
            os.link(path, copy, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except (OSError, NotImplementedError):
            os.replace(path, copy)
