"""Reader of TOML files, for every supported version of Python."""

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
    """Return the table in a file.

    Raises:
        InputError: the file cannot be read, or is larger than `LARGEST` bytes.
        ValueError: the file is not UTF-8, or not TOML.
    """
    return parse_toml(read_file(path, LARGEST).decode("utf-8"))


def parse_toml(text: str) -> dict[str, Any]:
    """Return the table in a text.

    Raises:
        ValueError: the text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("tables and lists are nested too deeply") from None
