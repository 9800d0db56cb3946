"""Temporary folders that are also removed after errors, and after a process was killed."""

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
    """Temporary folder of this process, removed by `close`, or by the next run if this one is killed.

    The folder is locked while it is in use. The lock of a killed process disappears, so its folders can be
    recognised. This also works across containers, in which process ids are not comparable.

    Raises:
        ToolError: no folder for temporary files exists, or it cannot be written.
    """

    def __init__(self) -> None:
        try:
            parent = Path(tempfile.gettempdir())
            _remove_abandoned(parent)
            self._folder = tempfile.TemporaryDirectory(
                prefix=f"{PREFIX}{os.getpid()}-", dir=parent, ignore_cleanup_errors=True
            )
        except OSError as error:
            raise ToolError(f"temporary files require a writable folder; set TMPDIR: {error}") from None
        self.path = Path(self._folder.name)
        self._lock = _lock(self.path)

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@contextlib.contextmanager
def scratch_folder() -> Generator[Path]:
    """Yield the path of a `ScratchFolder`, which is removed after the block."""
    folder = ScratchFolder()
    try:
        yield folder.path
    finally:
        folder.close()


def _lock(path: Path) -> int | None:
    """Lock a folder and return its descriptor; None if it is already locked, or without locks."""
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
    """Remove this user's folders of processes that no longer exist."""
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
    try:
        os.kill(int(path.name.split("-")[1]), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, OverflowError):
        return True
    return True
