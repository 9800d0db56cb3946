"""Passes, one per file, each named as its file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from microfold.passes import Pass, PassFactory


def available() -> Mapping[str, Pass | PassFactory[Any]]:
    """Every pass by its name; those with options as factories."""
    found: dict[str, Pass | PassFactory[Any]] = {}
    for module in iter_modules(__path__):
        for item in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(item, Pass | PassFactory) and item.name == module.name:
                found[module.name] = item
    return found


def summary(name: str) -> str:
    """What a pass does: the first line of its file."""
    doc = import_module(f"{__name__}.{name}").__doc__ or ""
    return doc.strip().partition("\n")[0]
