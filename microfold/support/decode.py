"""Decoder from plain data to structs, which reports all faults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Meta, inspect

from microfold.errors import InputError
from microfold.support.files import read_file

_T = TypeVar("_T")

# Largest number of a report. Charts compute with floats, whose sums and quotients must stay finite.
LARGEST = 1 << 62
_MOST_FAULTS = 8
_MOST_LETTERS = 40  # of a value or key in a message


def rule(text: str, **constraints: Any) -> Meta:
    """Return constraints of a type, with the text that messages have after "must be"."""
    return Meta(extra={"rule": text}, **constraints)


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


def decode(kind: type[_T], data: object, source: str, root: str = "$") -> _T:
    """Return a struct from plain data. Fields with a default may be missing.

    Unknown keys are ignored, except in structs that forbid them.

    Args:
        source: name of the data in error messages.
        root: path of the data in error messages.

    Raises:
        InputError: the data has faults; the message lists them with their places.
    """
    try:
        return msgspec.convert(data, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # it names only the first fault
        refuse(source, [*_faults(_type_of(kind), data, root)] or [str(error)])
        raise


def refuse(source: str, faults: list[str]) -> None:
    """Raise InputError if `faults` is not empty."""
    if faults:
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        raise InputError(f"{source}: {'; '.join(faults[:_MOST_FAULTS] + more)}")


@cache
def _type_of(kind: type[Any]) -> inspect.Type:
    return inspect.type_info(kind)


def _faults(kind: inspect.Type, data: Any, where: str, wanted: str = "") -> Iterator[str]:
    """Yield the faults of data that should have a type.

    Args:
        wanted: rule of the type, for messages; empty: derived from the type.
    """
    match kind:
        case inspect.Metadata():
            yield from _faults(kind.type, data, where, _rule_of(kind) or wanted)
        case inspect.UnionType():
            found = [[*_faults(each, data, where, wanted)] for each in kind.types]
            yield from found[0] if all(found) else ()
        case inspect.StructType() if isinstance(data, dict):
            known = {field.encode_name: field for field in kind.fields}
            if kind.forbid_unknown_fields and (unknown := [key for key in data if key not in known]):
                names = ", ".join(_path(where, key) for key in unknown[:_MOST_FAULTS])
                yield f"unknown key {names}; known are {', '.join(known)}"
            for name, field in known.items():
                path = _path(where, name)
                if name in data:
                    yield from _faults(field.type, data[name], path)
                elif field.required:
                    text = _rule_of(field.type)
                    yield f"{path} is missing" + (f"; it must be {text}" if text else "")
        case inspect.VarTupleType() if isinstance(data, list | tuple) and _has_length(kind, data):
            for i, each in enumerate(data):  # type: ignore[reportUnknownVariableType]
                yield from _faults(kind.item_type, each, f"{where}[{i}]")
        case inspect.DictType() if isinstance(data, dict):
            for key, each in data.items():  # type: ignore[reportUnknownVariableType]
                yield from _faults(kind.key_type, key, f"a key of {where}")
                yield from _faults(kind.value_type, each, _path(where, key))
        case _:
            own, is_valid = _check(kind, data)
            if not is_valid:
                yield f"{where} must be {wanted or own}; it is {shown(data)}"


def _has_length(kind: inspect.VarTupleType, data: Sequence[object]) -> bool:
    most = kind.max_length
    return len(data) >= (kind.min_length or 0) and (most is None or len(data) <= most)


def _rule_of(kind: inspect.Type) -> str:
    return (kind.extra or {}).get("rule", "") if isinstance(kind, inspect.Metadata) else ""


def _path(where: str, key: object) -> str:
    text = str(key) if str(key).isprintable() else repr(key)
    return f"{where}.{text[:_MOST_LETTERS]}" if where else text[:_MOST_LETTERS]


def _check(kind: inspect.Type, data: Any) -> tuple[str, bool]:
    """Return the rule for a value without parts, and whether the data meet it."""
    match kind:
        case inspect.IntType():
            least, most = kind.ge, kind.le
            text = "a whole number" if least in (None, -LARGEST) else f"a whole number from {least}"
            text += "" if most in (None, LARGEST) else f" to {most}"
            in_range = (
                type(data) is int and (least is None or data >= least) and (most is None or data <= most)
            )
            return text, in_range
        case inspect.LiteralType():
            is_one = any(type(data) is type(value) and data == value for value in kind.values)
            return f"one of {', '.join(map(str, kind.values))}", is_one
        case inspect.StrType(pattern=str() as pattern):
            return f"a text like {pattern}", isinstance(data, str) and re.search(pattern, data) is not None
        case inspect.StrType():
            return "a text", isinstance(data, str) and len(data) >= (kind.min_length or 0)
        case inspect.BoolType():
            return "true or false", isinstance(data, bool)
        case inspect.FloatType():
            return "a number", isinstance(data, int | float) and not isinstance(data, bool)
        case inspect.NoneType():
            return "null", data is None
        case inspect.VarTupleType():
            return "a list", False
        case _:
            return "an object", False


def shown(data: object) -> str:
    """Return a short text for a value."""
    if isinstance(data, dict):
        return "an object"
    if isinstance(data, list | tuple):
        return "a list"
    text = repr(data) if not isinstance(data, int) or abs(data) <= LARGEST else "too large"
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."
