"""Passes, one per module of the same name, in one folder for each stage of the pipeline."""

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
    """Return every pass by name; passes with options as factories."""
    found: dict[str, Pass | PassFactory[Any]] = {}
    for module in _modules():
        for item in vars(module).values():
            # A module may also define the factory's pass with default options.
            if isinstance(item, Pass | PassFactory) and item.name == _stem(module):
                found[item.name] = item if isinstance(item, PassFactory) else found.get(item.name, item)
    return MappingProxyType(found)


def location(name: str) -> str:
    """Return the module name of a pass."""
    return _module(name).__name__


def summary(name: str) -> str:
    """Return the summary of a pass: the first line of its module docstring."""
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


# Passes can require each other by name.
register_passes(available)
