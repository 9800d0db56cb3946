"""TOML files, on every supported version of Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path) -> dict[str, Any]:
    """The table that a file holds.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not UTF-8, or not TOML.
    """
    return tomllib.loads(path.read_text(encoding="utf-8"))
