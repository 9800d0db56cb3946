"""TOML files, on every supported version of Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from microfold.support.files import read_file

LARGEST = 1 << 20


def read_toml(path: Path) -> dict[str, Any]:
    """The table that a file holds.

    Raises:
        InputError: it cannot be read, or is larger than any that is meant.
        ValueError: it is not UTF-8, or not TOML.
    """
    return parse_toml(read_file(path, LARGEST).decode("utf-8"))


def parse_toml(text: str) -> dict[str, Any]:
    """The table that a text holds.

    Raises:
        ValueError: it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("tables and lists are too deep in each other") from None
