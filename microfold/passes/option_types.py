"""Type check of pass options, by their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from microfold.errors import InputError

_SCALARS = (bool, int, float, str, NoneType)


def check_options(name: str, form: Any, args: Sequence[object], options: Mapping[str, object]) -> None:
    """Check the names and types of the options of a pass.

    Args:
        form: class whose fields are the options.

    Raises:
        InputError: an option is unknown, missing, or has the wrong type.
    """
    given = _bound(name, form, args, options)
    hints = get_type_hints(form)
    for option, value in given.items():
        hint = hints.get(option, Any)
        if not _fits(value, hint):
            raise InputError(f"{option} of {name} must be {_words(hint)}; it is {value!r}")


def _bound(name: str, form: Any, args: Sequence[object], options: Mapping[str, object]) -> dict[str, object]:
    parameters = inspect.signature(form).parameters
    declared = [*parameters]
    has = f"its options are {', '.join(declared)}" if declared else "it has no options"
    if len(args) > len(declared):
        raise InputError(f"{name} is given {len(args)} options; {has}")
    given = dict(zip(declared, args, strict=False))
    for option in options:
        if option not in declared:
            raise InputError(f"{name} has no option {option!r}; {has}")
        if option in given:
            raise InputError(f"{name} is given {option} twice")
    given |= options
    missing = [name for name, p in parameters.items() if name not in given and p.default is p.empty]
    if missing:
        raise InputError(f"{name} requires {', '.join(missing)}")
    return given


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value has a type. Types that are hard to check are accepted."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if hint in (int, float):
        return isinstance(value, (int, float) if hint is float else int) and not isinstance(value, bool)
    if origin is tuple or origin is Sequence:
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        scalars = [part for part in parts[:1] if part in _SCALARS]
        return listed and all(
            _fits(each, part) for each in cast("Sequence[object]", value) for part in scalars
        )
    if origin is Mapping:
        values = cast("Mapping[object, object]", value).values() if isinstance(value, Mapping) else ()
        scalars = [part for part in parts[1:] if part in _SCALARS]
        return isinstance(value, Mapping) and all(_fits(each, part) for each in values for part in scalars)
    if origin is Callable:
        return callable(value)
    return isinstance(value, hint) if hint in _SCALARS else True


def _words(hint: Any) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_words(part) for part in parts)
    if origin is Literal:
        return " or ".join(map(str, parts))
    if origin is tuple or origin is Sequence:
        return "a list" + (f" of {parts[0].__name__}" if parts and parts[0] in _SCALARS else "")
    names = {Mapping: "a mapping", Callable: "a function"}
    return names.get(origin, "None" if hint is NoneType else getattr(hint, "__name__", str(hint)))
