"""Entry point of ``python -m microfold.tune.entry FILE.py:FUNCTION IMAGE``, which calls a runner function.

It prints the result of the function for an image. The separate process can be killed if the function hangs.
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
    """Return the function ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``. Importing it can raise any error."""
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
    """Raise `InputError` if the text does not name an existing ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION``.

    The file is only parsed here. It is executed only in separate processes.
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
                raise InputError(f"--runner must name a module that Python finds; it does not find {place!r}")
            source = Path(found.origin or "")
        if source.suffix == ".py" and not _binds(ast.parse(source.read_bytes(), str(source)), name):
            raise InputError(f"--runner must name a function; {source} has no {name!r}")
    except (ImportError, OSError, SyntaxError, ValueError) as error:
        raise InputError(
            f"--runner must name a Python file or module; {place} cannot be read: {error}"
        ) from None


def _find_module(name: str) -> ModuleSpec | None:
    """Find a module like the process that calls the function, which also searches the current folder."""
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.util.find_spec(name)
    finally:
        sys.path.pop(0)


def _binds(module: ast.Module, name: str) -> bool:
    """Return whether the source of a module may define this name."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) in (name, "*"):
            return True
    return False


def call_entry(entry: str, image: str) -> None:
    """Print the result of the function. If it raises an error, end the process with one line."""
    try:
        print(find_entry(entry)(Path(image)))
    except Exception as error:
        sys.exit(f"{entry} has raised {type(error).__name__}: {error}")


if __name__ == "__main__":
    call_entry(sys.argv[1], sys.argv[2])
