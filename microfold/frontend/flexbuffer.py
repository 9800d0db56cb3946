"""Parser for the options of custom operators: a flexbuffer map of integers."""

from __future__ import annotations

from typing import Any

from flatbuffers import flexbuffers

from microfold.frontend.context import Unsupported
from microfold.ir.limits import MAX_INTEGER


def integers(data: bytes, names: tuple[str, ...]) -> dict[str, int]:
    """Return the values of a map that must have exactly these keys. Booleans become 0 and 1.

    Raises:
        Unsupported: the bytes are not a map of integers with these keys.
    """
    try:
        root: Any = flexbuffers.GetRoot(bytearray(data))
        found = root.AsMap
        # Check the length first, because malformed bytes can declare any length.
        given = len(found) == len(names) and tuple(key.AsKey for key in found.Keys) == tuple(sorted(names))
        values = list(found.Values) if given else []
        known = given and all(value.IsInt or value.IsBool for value in values)
        result = (
            {name: int(value.AsInt) for name, value in zip(sorted(names), values, strict=True)}
            if known
            else {}
        )
    except Exception as error:
        raise _refusal(data, names) from error
    if not known:
        raise _refusal(data, names)
    for name, value in result.items():
        if abs(value) > MAX_INTEGER:
            raise Unsupported(f"{name} must be in [{-MAX_INTEGER}, {MAX_INTEGER}]; it is {value}")
    return result


def _refusal(data: bytes, names: tuple[str, ...]) -> Unsupported:
    return Unsupported(
        f"its options must be a flexbuffer map of integers, {', '.join(sorted(names))}; they are {data!r}"
    )
