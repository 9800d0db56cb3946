"""Where the project's data folders are: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def _folder(name: str) -> Path:
    for parent in (_PACKAGE / "_data", _PACKAGE.parent):
        if (parent / name).is_dir():
            return parent / name
    raise FileNotFoundError(f"microfold's {name}/ is missing; reinstall the package")


def template_dir() -> Path:
    """The folder of Jinja2 templates."""
    return _folder("templates")


def target_dir() -> Path:
    """The folder of target descriptions."""
    return _folder("targets")


def cmake_dir() -> Path:
    """The folder of what CMake's ``find_package(microfold)`` finds."""
    return _PACKAGE / "cmake"
