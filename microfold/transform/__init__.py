"""Passes, one per file, each named as its file; a folder for each part of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import MappingProxyType, ModuleType
from typing import Any

from microfold.passes.decorators import PassFactory
from microfold.passes.kinds import Pass
from microfold.passes.registry import register_passes


@cache
def available() -> Mapping[str, Pass | PassFactory[Any]]:
    """Return every pass by its name; those with options as factories."""
    found: dict[str, Pass | PassFactory[Any]] = {}
    for module in _modules():
        for item in vars(module).values():
            # A module may also have the pass of a factory with its defaults.
            if isinstance(item, Pass | PassFactory) and item.name == _stem(module):
                found[item.name] = item if isinstance(item, PassFactory) else found.get(item.name, item)
    return MappingProxyType(found)


def location(name: str) -> str:
    """The module of a pass."""
    return _module(name).__name__


def summary(name: str) -> str:
    """What a pass does: the first line of its file."""
    doc = _module(name).__doc__ or ""
    return doc.strip().partition("\n")[0]


def _module(name: str) -> ModuleType:
    return next(module for module in _modules() if _stem(module) == name)


@cache
def _modules() -> tuple[ModuleType, ...]:
    found = walk_packages(__path__, f"{__name__}.")
    return tuple(import_module(module.name) for module in found)


def _stem(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


# So that a pass may require one of these by its name.
register_passes(available)
