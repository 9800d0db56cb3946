"""Whole files: inputs that are none are refused, outputs are written all or nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath

from microfold.errors import InputError
from microfold.support.signals import deferred_signals

if os.name == "posix":
    import fcntl

# A .tflite file addresses its parts by 32 bits, signed (FlatBuffers); no input of another kind is as large.
LARGEST_INPUT = (1 << 31) - 1
_STAGING = ".microfold-"


def read_file(path: Path, largest: int = LARGEST_INPUT) -> bytes:
    """The bytes of a regular file.

    Raises:
        InputError: it cannot be read, is no regular file, or is too large.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"cannot read {path}: it must be a file; it is {_kind(status.st_mode)}")
            if status.st_size > largest:
                raise InputError(f"{path} may have {largest:,} bytes; it has {status.st_size:,}")
            # Not more than there is: a buffer of the largest size would be taken first.
            content = file.read(status.st_size or largest)
            if content is None:  # type: ignore[reportUnnecessaryComparison]  # what /proc has may have to be waited for
                raise BlockingIOError(errno.EAGAIN, "it has nothing to read yet")
            return content
    except OSError as error:
        if isinstance(error, IsADirectoryError):
            raise InputError(f"cannot read {path}: it must be a file; it is a folder") from None
        raise InputError(f"cannot read {path}: {reason(error)}") from None
    except ValueError as error:  # a NUL in the path
        raise InputError(f"cannot read {str(path)!r}: {error}") from None


def _open_without_waiting(path: str, flags: int) -> int:
    """A named pipe without a writer is opened at once, to be refused then."""
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
    """Why the system refused something, and what to do about it."""
    advice = _ADVICE.get(error.errno or 0, "")
    return "; ".join(filter(None, (error.strerror or str(error), advice)))


def write_file(path: Path, content: str | bytes) -> None:
    """Write one file, or nothing; see `write_files`."""
    if path.name == "" or str(path).endswith(os.sep):
        raise InputError(f"an output needs a file's name; it is {str(path)!r}")
    write_files(path.parent, {path.name: content})


def write_files(folder: Path, files: Mapping[str, str | bytes], obsolete: Collection[str] = ()) -> None:
    """Write files into a folder, which is made if needed: all of them, or, if anything fails, none.

    Every file is complete under a temporary name before the first gets its own; those that were there before
    come back if one cannot be put in its place. Signals wait until the files are in place. Several processes
    that write into one folder do so one after the other.

    Args:
        files: name to content; text is written as UTF-8. A name may have folders in it, e.g. ``src/kws.c``.
        obsolete: names of files to remove, where they are there; folders that this leaves empty go with them.

    Raises:
        InputError: the folder cannot be written, or a name is taken by something that is no file.
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
        _remove_empty(reversed(made))  # unless another process has used them
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
    """The folders in a file's name, the innermost first."""
    return list(PurePosixPath(name).parents)[:-1]


def _remove_empty(folders: Iterable[Path]) -> None:
    for path in folders:
        with contextlib.suppress(OSError):  # it is not empty
            path.rmdir()


def _make_and_lock(folder: Path, made: list[Path]) -> int | None:
    """Make a folder and lock it; None where folders cannot be locked.

    Args:
        made: gets the folders that were not there before.
    """
    while True:
        with contextlib.suppress(FileNotFoundError):
            folder.stat()  # refuses at once what cannot be a folder's path
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
        # A process whose writing failed has removed it in the meantime.
        os.close(lock)


def _check_names(folder: Path, names: Iterable[str]) -> None:
    """Every name must be free, or that of a file; the folders in it, too, or those of folders."""
    taken: dict[str, None] = {}
    for name in names:
        if not is_inside(name):
            raise InputError(f"an output needs a file's name; it is {name!r}")
        for path, fits in [(name, _is_file), *((parent, stat.S_ISDIR) for parent in _parents(name))]:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # the outer folder is told of
                mode = (folder / path).lstat().st_mode
                if not fits(mode):
                    taken[f"{folder / path} is {_kind(mode)}"] = None
    if taken:
        raise InputError(f"outputs replace nothing but files; {', '.join(taken)}: choose another --output")


def is_inside(name: str) -> bool:
    """Whether a relative path, with ``/`` between its parts, is that of something in the folder."""
    return bool(name) and all(
        part not in ("", ".", "..") and Path(part).name == part for part in name.split("/")
    )


def _is_file(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _remove_abandoned(folder: Path, lock: int | None) -> None:
    """Remove what a process left that was killed; whoever has the lock is the only one at work."""
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
    """A second name for a file, if there is one; where files have only one, it loses the first."""
    with contextlib.suppress(FileNotFoundError):
        try:
            os.link(path, copy, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except (OSError, NotImplementedError):
            os.replace(path, copy)
