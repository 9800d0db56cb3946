"""Decoder from JSON to dataclasses, which checks the data against the fields and reports all faults."""

from __future__ import annotations

import json
import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from microfold.errors import InputError
from microfold.support.files import read_file

_T = TypeVar("_T")

# Largest allowed number. Charts compute with floats, whose sums and quotients must stay finite.
_LARGEST = 1 << 62
_MOST_FAULTS = 8


def read_json(path: Path) -> Any:
    """Return the value of a JSON file.

    Raises:
        InputError: the file cannot be read, or is not JSON.
    """
    try:
        return json.loads(read_file(path).decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} must be JSON in UTF-8; byte {error.start} is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        raise InputError(f"{path} must be JSON: {reason}") from None


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def decode(kind: type[_T], data: object, source: str) -> _T:
    """Return a dataclass from plain data. Fields with a default may be missing; unknown keys are ignored.

    Args:
        kind: dataclass with fields of type ``str``, ``bool``, ``int``, ``Literal`` of strings or integers,
            ``X | None``, ``tuple[X, ...]`` and dataclasses of these. The ``minimum`` in a field's metadata is
            the smallest allowed integer: 0 by default, None for any integer.
        source: name of the data in error messages.

    Raises:
        InputError: the data has faults; the message lists them with their places.
    """
    faults: list[str] = []
    found = _decode(kind, data, "$", 0, faults)
    refuse(source, faults)
    return found


def refuse(source: str, faults: list[str]) -> None:
    """Raise InputError if `faults` is not empty."""
    if faults:
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        raise InputError(f"{source}: {'; '.join(faults[:_MOST_FAULTS] + more)}")


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _decode(kind: Any, data: Any, where: str, minimum: int | None, faults: list[str]) -> Any:
    if is_dataclass(kind):
        return _decode_fields(kind, data, where, faults)
    origin = get_origin(kind)
    if origin is types.UnionType:
        return None if data is None else _decode(get_args(kind)[0], data, where, minimum, faults)
    if origin is tuple:
        if isinstance(data, list | tuple):
            item: Any = get_args(kind)[0]
            return tuple(_decode(item, d, f"{where}[{i}]", minimum, faults) for i, d in enumerate(data))
        wanted = "a list"
    elif origin is Literal:
        if any(type(data) is type(value) and data == value for value in get_args(kind)):
            return data
        wanted = f"one of {', '.join(map(str, get_args(kind)))}"
    elif kind is int:
        if type(data) is int and (-_LARGEST if minimum is None else minimum) <= data <= _LARGEST:
            return data
        wanted = "a whole number" if minimum is None else f"a whole number from {minimum}"
    else:
        if type(data) is kind:
            return data
        wanted = {str: "a text", bool: "true or false"}[kind]
    faults.append(f"{where} must be {wanted}; it is {shown(data)}")
    return None


def _decode_fields(kind: Any, data: Any, where: str, faults: list[str]) -> Any:
    if not isinstance(data, dict):
        faults.append(f"{where} must be an object; it is {shown(data)}")
        return None
    given: dict[str, Any] = {}
    before = len(faults)
    for field in fields(kind):
        name = field.metadata.get("key", field.name)
        if name in data:
            minimum = field.metadata.get("minimum", 0)
            given[field.name] = _decode(
                _hints(kind)[field.name], data[name], f"{where}.{name}", minimum, faults
            )
        elif field.default is MISSING:
            faults.append(f"{where}.{name} is missing")
    return kind(**given) if len(faults) == before else None


def shown(data: object) -> str:
    """Return a short text for a value."""
    if isinstance(data, dict):
        return "an object"
    if isinstance(data, list | tuple):
        return "a list"
    text = repr(data) if not isinstance(data, int) or abs(data) <= _LARGEST else "too large"
    return text if len(text) <= 40 else f"{text[:40]}..."
