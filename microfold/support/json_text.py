"""JSON text of data with any numbers."""

from __future__ import annotations

import json
import math
from typing import Any


def to_json(data: Any) -> str:
    """Return JSON text of plain data and structs.

    Numbers without a JSON form become the strings ``inf``, ``-inf`` and ``nan``.
    """
    from msgspec import to_builtins

    return json.dumps(_finite(to_builtins(data)), indent=2, allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else str(data)
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}  # type: ignore[reportUnknownVariableType]
    if isinstance(data, list | tuple):
        return [_finite(item) for item in data]  # type: ignore[reportUnknownVariableType]
    return data
