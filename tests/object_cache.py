"""Object files of simulated firmware, kept within a process by what went into them.

Most images of a test run share the files of their harness, and both images of a model its weights.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

_HOOKS = re.compile(r"-D\w+_HOOKS=")
Compile = Callable[[str, Sequence[str], Path, str], str]


def cached(compile_object: Compile) -> Compile:
    """`microfold.simulate.toolchain.compile_object`, not done twice for the same texts and flags."""
    known: dict[str, bytes] = {}

    def compile_or_copy(compiler: str, flags: Sequence[str], folder: Path, source: str) -> str:
        key = _key(compiler, flags, folder, source)
        target = source.removesuffix(".c") + ".o"
        if key in known:
            (folder / target).write_bytes(known[key])
            return target
        compile_object(compiler, flags, folder, source)
        if key:
            known[key] = (folder / target).read_bytes()
        return target

    return compile_or_copy


def _key(compiler: str, flags: Sequence[str], folder: Path, source: str) -> str:
    """A digest of all that decides the object's bytes; empty if an include's name is not in the text."""
    digest = hashlib.sha256(repr((shutil.which(compiler), source)).encode())
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
