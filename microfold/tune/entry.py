"""``python -m microfold.tune.entry FILE.py:FUNCTION IMAGE``: prints what a function returns of an image.

A process of its own, which can be ended where the function hangs.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from microfold.errors import InputError


def find_entry(entry: str) -> Any:
    """The function ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``; whatever its import raises."""
    place, _, name = entry.rpartition(":")
    if not place.endswith(".py"):
        return getattr(importlib.import_module(place), name)
    spec = importlib.util.spec_from_file_location(Path(place).stem, place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def check_entry(entry: str) -> None:
    """Raises InputError if this is no ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION`` that is there.

    A file is run by processes of its own only: here it is read.
    """
    place, _, name = entry.rpartition(":")
    if not place or not name.isidentifier():
        raise InputError(f"--runner must be FILE.py:FUNCTION or MODULE:FUNCTION; it is {entry!r}")
    try:
        if place.endswith(".py"):
            source = Path(place)
        else:
            found = _find_module(place)
            if found is None:
                raise InputError(f"--runner must name a module that Python finds; there is no {place!r}")
            source = Path(found.origin or "")
        if source.suffix == ".py" and not _binds(ast.parse(source.read_bytes(), str(source)), name):
            raise InputError(f"--runner must name a function; {source} has no {name!r}")
    except (ImportError, OSError, SyntaxError, ValueError) as error:
        raise InputError(
            f"--runner must name a Python file or module; {place} cannot be read: {error}"
        ) from None


def _find_module(name: str) -> ModuleSpec | None:
    """As the process finds it that calls the function: also in the current folder."""
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.util.find_spec(name)
    finally:
        sys.path.pop(0)


def _binds(module: ast.Module, name: str) -> bool:
    """Whether a module may give something this name, as far as its text tells."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) in (name, "*"):
            return True
    return False


def call_entry(entry: str, image: str) -> None:
    """Prints what the function returns; what it raises ends the process with a line."""
    try:
        print(find_entry(entry)(Path(image)))
    except Exception as error:
        sys.exit(f"{entry} has raised {type(error).__name__}: {error}")


if __name__ == "__main__":
    call_entry(sys.argv[1], sys.argv[2])
