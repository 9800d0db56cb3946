"""Reader of the table ``pipeline`` in a target's file."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from microfold.errors import TargetError
from microfold.target.pipeline import CLASSES, Issue, Pipeline, ancestry

# Maximum of all figures, far above real ones.
MOST = 1000
# Keys whose values are tables or lists.
_LISTS = ("issues", "never", "apart", "leads", "one_of")


def read_pipeline(table: Mapping[str, Any], where: str) -> Pipeline:
    """Return the pipeline in a table.

    Raises:
        TargetError: a key or a class is unknown, or a value has the wrong type.
    """
    _check_keys(table, Pipeline, where, "pipeline")
    for key in ("source", "error"):
        if key not in table:
            raise TargetError(f"{where}: a pipeline must have {key}; it has {', '.join(table) or 'nothing'}")
    issues: Any = table.get("issues", {})
    if not isinstance(issues, dict):
        raise TargetError(f"{where}: pipeline.issues must be a table; it is {reprlib.repr(issues)}")
    own = cast(dict[str, Any], issues)
    for name, fields_of_class in own.items():
        _check_class(name, where, "pipeline.issues")
        if not isinstance(fields_of_class, dict):
            raise TargetError(f"{where}: pipeline.issues.{name} must be a table")
        _check_keys(cast(dict[str, Any], fields_of_class), Issue, where, f"pipeline.issues.{name}")
    plain = {k: v for k, v in table.items() if k not in _LISTS}
    return Pipeline(
        **plain,
        issues={name: _issue(name, own) for name in CLASSES},
        never=frozenset(_pair(pair, where) for pair in _list(table, "never", where)),
        apart=_distances(table, "apart", where),
        leads=_distances(table, "leads", where),
        one_of=frozenset(
            _check_class(name, where, "pipeline.one_of") for name in _list(table, "one_of", where)
        ),
    )


def _issue(name: str, own: Mapping[str, Mapping[str, Any]]) -> Issue:
    merged: dict[str, Any] = {}
    for each in reversed([*ancestry(name)]):
        merged |= own.get(each, {})
    merged["units"] = tuple(merged.get("units", ()))
    return Issue(**merged)


def _pair(pair: Any, where: str) -> tuple[str, str]:
    if not isinstance(pair, list) or len(cast(list[Any], pair)) != 2:
        raise TargetError(f"{where}: pipeline.never must have pairs of classes; one is {reprlib.repr(pair)}")
    older, younger = cast(list[Any], pair)
    for name in (older, younger):
        if name != "any":
            _check_class(name, where, "pipeline.never")
    return str(older), str(younger)


def _distances(table: Mapping[str, Any], key: str, where: str) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for each in _list(table, key, where):
        if not isinstance(each, list) or len(cast(list[Any], each)) != 3:
            raise TargetError(
                f"{where}: pipeline.{key} must have two classes and cycles; one is {reprlib.repr(each)}"
            )
        older, younger, cycles = cast(list[Any], each)
        if type(cycles) is not int or not 0 < cycles <= MOST:
            raise TargetError(
                f"{where}: cycles of pipeline.{key} must be up to {MOST}; one is {reprlib.repr(each)}"
            )
        pair = (
            _check_class(older, where, f"pipeline.{key}"),
            _check_class(younger, where, f"pipeline.{key}"),
        )
        found[pair] = cycles
    return found


def _check_class(name: Any, where: str, what: str) -> str:
    if name not in CLASSES:
        raise TargetError(
            f"{where}: {what} must name a class of instructions; unknown {reprlib.repr(name)}; "
            f"classes are {', '.join(CLASSES)}"
        )
    return str(name)


def _list(table: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value: Any = table.get(key, [])
    if not isinstance(value, list):
        raise TargetError(f"{where}: pipeline.{key} must be a list; it is {reprlib.repr(value)}")
    return cast(list[Any], value)


@cache
def _fields(kind: type[Struct]) -> Mapping[str, FieldInfo]:
    return {field.name: field for field in fields(kind)}


def _check_keys(table: Mapping[str, Any], kind: type[Struct], where: str, what: str) -> None:
    """Check that every key is a field of the class, and that plain values have its type."""
    known = _fields(kind)
    for key, value in table.items():
        if key not in known:
            raise TargetError(f"{where}: unknown key {what}.{key}; known are {', '.join(known)}")
        rule = _rule(key, known[key].default)
        if rule is not None and not rule[1](value):
            raise TargetError(f"{where}: {what}.{key} must be {rule[0]}; it is {reprlib.repr(value)}")


def _rule(key: str, default: Any) -> tuple[str, Callable[[Any], bool]] | None:
    """Return the rule for the value of a key and its check; None if the value is checked elsewhere."""
    if key == "source":
        return "a printable text", lambda value: isinstance(value, str) and value.isprintable()
    if key == "units":
        return "a list of names", _is_names
    if key in _LISTS:
        return None
    if isinstance(default, bool):
        return "true or false", lambda value: isinstance(value, bool)
    return f"a whole number, at most {MOST}", lambda value: type(value) is int and -MOST <= value <= MOST


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in cast(list[Any], value))
