"""Temporary folders that do not stay: not behind errors, and not behind a run that was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

from microfold.errors import ToolError

if os.name == "posix":
    import fcntl

PREFIX = "microfold-"


class ScratchFolder:
    """A temporary folder of this process; removed by `close`, or by the next run if this one is killed.

    As long as it is in use it is locked. The lock of a process that was killed is gone, so that its folders
    can be told from those in use, also by processes of other containers, whose numbers say nothing here.

    Raises:
        ToolError: there is no folder for temporary files, or it cannot be written.
    """

    def __init__(self) -> None:
        try:
            parent = Path(tempfile.gettempdir())
            _remove_abandoned(parent)
            self._folder = tempfile.TemporaryDirectory(
                prefix=f"{PREFIX}{os.getpid()}-", dir=parent, ignore_cleanup_errors=True
            )
        except OSError as error:
            raise ToolError(
                f"temporary files need a folder that can be written, e.g. by TMPDIR: {error}"
            ) from None
        self.path = Path(self._folder.name)
        self._lock = _lock(self.path)

    def close(self) -> None:
        """Removes the folder."""
        self._folder.cleanup()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@contextlib.contextmanager
def scratch_folder() -> Generator[Path]:
    """A `ScratchFolder` for a block of code."""
    folder = ScratchFolder()
    try:
        yield folder.path
    finally:
        folder.close()


def _lock(path: Path) -> int | None:
    """An open and locked descriptor of a folder; None if it is locked, or where there are no locks."""
    if os.name != "posix":
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned(parent: Path) -> None:
    """Remove this user's folders of processes that are no more."""
    if os.name != "posix":
        return
    for path in parent.glob(f"{PREFIX}[0-9]*-*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid != os.getuid() or path.is_symlink() or _runs(path):
                continue
            lock = _lock(path)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _runs(path: Path) -> bool:
    """Whether there is a process of the number that a folder's name has."""
    try:
        os.kill(int(path.name.split("-")[1]), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, OverflowError):
        return True
    return True
