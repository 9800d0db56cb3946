"""Compiled files of the tests, kept on disk by what went into them.

Most images of a test run share the files of their harness, and both images of a model its weights. Further
runs compile only what has changed.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from microfold.program import Program

# Files that no run has used for so long are deleted.
LONGEST_UNUSED = 3 * 24 * 3600  # seconds
_HOOKS = re.compile(r"-D\w+_HOOKS=")
CompileObject = Callable[[str, Sequence[str], Path, str], str]
CompileLibrary = Callable[[Sequence[str], Path, Program], None]


class ObjectCache:
    """Files in a folder that several processes may use."""

    def __init__(self, folder: Path):
        self._folder = folder

    def delete_unused(self) -> None:
        """Delete files that no run has used for `LONGEST_UNUSED`."""
        oldest = time.time() - LONGEST_UNUSED
        for path in self._folder.iterdir():
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)

    def objects(self, compile_object: CompileObject) -> CompileObject:
        """Return `toolchain.compile_object`, not done twice for the same texts and flags."""

        def compile_or_copy(compiler: str, flags: Sequence[str], folder: Path, source: str) -> str:
            target = source.removesuffix(".c") + ".o"
            key = _object_key(compiler, flags, folder, source)
            self._make(key, folder / target, lambda: compile_object(compiler, flags, folder, source))
            return target

        return compile_or_copy

    def libraries(self, run_compiler: CompileLibrary) -> CompileLibrary:
        """Return `library.run_compiler`, not done twice for the same texts and flags."""

        def compile_or_copy(command: Sequence[str], folder: Path, program: Program) -> None:
            # Flags of the user name files that are not in the folder.
            key = "" if program.options.external_flags else _library_key(command, folder)
            self._make(key, Path(command[-1]), lambda: run_compiler(command, folder, program))

        return compile_or_copy

    def _make(self, key: str, target: Path, compile_target: Callable[[], object]) -> None:
        """Copy the file with this key, or compile it and keep it. An empty key keeps nothing."""
        kept = self._folder / key
        if key and kept.is_file():
            os.utime(kept)
            shutil.copyfile(kept, target)
            return
        compile_target()
        if key and target.is_file():
            # Another process never sees half of a file.
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(target.read_bytes())
            Path(file.name).replace(kept)


@functools.cache
def _identity(compiler: str) -> str:
    """Return a text that changes with the compiler: an update replaces its file."""
    path = shutil.which(compiler)
    if path is None:
        return compiler
    found = Path(path).resolve().stat()
    return f"{path} {found.st_size} {found.st_mtime_ns}"


def _library_key(command: Sequence[str], folder: Path) -> str:
    """Return a digest of the command and of all files in the folder."""
    flags = [part.replace(str(folder), ".") for part in command[1:]]
    digest = hashlib.sha256(repr((_identity(command[0]), flags)).encode())
    for path in sorted(folder.iterdir()):
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _object_key(compiler: str, flags: Sequence[str], folder: Path, source: str) -> str:
    """Return a digest of all that decides the object's bytes; empty if a macro names an include."""
    digest = hashlib.sha256(repr((_identity(compiler), source)).encode())
    seen: set[Path] = set()
    hooks = False
    files = [folder / source]
    while files:
        path = files.pop()
        if path in seen:
            continue
        seen.add(path)
        text = path.read_text(encoding="utf-8")
        if re.search(r'^\s*#\s*include\s+[^"<\s]', text, re.MULTILINE):
            return ""
        digest.update(f"\0{path.relative_to(folder)}\0{text}".encode())
        hooks = hooks or "_HOOKS" in text
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
            # As the compiler looks for them: beside the file, then in the folder.
            files += [found for found in (path.parent / name, folder / name) if found.is_file()][:1]
    # Files that know no hooks, as those of weights, are the same in images with and without them.
    digest.update(repr([flag for flag in flags if hooks or not _HOOKS.match(flag)]).encode())
    return digest.hexdigest()
