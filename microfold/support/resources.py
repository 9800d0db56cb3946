"""Locations of the project's data folders: next to the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def _folder(name: str) -> Path:
    for parent in (_PACKAGE / "_data", _PACKAGE.parent):
        if (parent / name).is_dir():
            return parent / name
    raise FileNotFoundError(f"microfold's {name}/ is missing; reinstall the package")


def template_dir() -> Path:
    """Return the folder of Jinja2 templates."""
    return _folder("templates")


def target_dir() -> Path:
    """Return the folder of target descriptions."""
    return _folder("targets")


def cmake_dir() -> Path:
    """Return the folder of the CMake package, for ``find_package(microfold)``."""
    return _PACKAGE / "cmake"
