"""``python -m microfold.tune.entry FILE.py:FUNCTION IMAGE``: prints what a function returns of an image.

A process of its own, which can be ended where the function hangs.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any


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


if __name__ == "__main__":
    print(find_entry(sys.argv[1])(Path(sys.argv[2])))
