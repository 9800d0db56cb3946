"""What the words of a command line stand for."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

_NUMBER = re.compile(r"[0-9]{1,18}")


class PlainCommand(TyperCommand):
    """A command whose parameters take what is plainly of their types as it is.

    Newer versions of typer validate each one's value with pydantic, also where nothing is given. To import
    and prepare that takes longer than many a command. It still does whatever is not plain, with its messages.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """Likewise a group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))


def _plain(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        validated = getattr(parameter, "get_runtime_param", None)
        if validated is not None and not isinstance(validated, partial):
            parameter.get_runtime_param = partial(_Plain, validated)
    return parameters


class _Plain:
    """As typer's own, what makes values of a parameter."""

    def __init__(self, validated: Any):
        self.validated = validated

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        descriptor = param.type_descriptor
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if several and get_origin(descriptor.annotation) is list and isinstance(value, tuple | list):
            (kind,) = get_args(descriptor.annotation)
            plain: Any = [_plainly(each, kind, descriptor.parameter_info) for each in value]  # type: ignore[reportUnknownVariableType]
            found = None if None in plain else plain
        else:
            found = None if several else _plainly(value, descriptor.annotation, descriptor.parameter_info)
        return self.validated().coerce(value, param=param, ctx=ctx) if found is None else found


def _plainly(value: Any, kind: Any, info: Any) -> Any:
    """A value of a parameter of some kind; None where that is not plain."""
    if kind is Path and isinstance(value, str | Path):
        return Path(value) if not os.path.exists(value) or os.access(value, os.R_OK) else None
    if kind is int and isinstance(value, str) and _NUMBER.fullmatch(value):
        number = int(value)
        fits = (info.min is None or number >= info.min) and (info.max is None or number <= info.max)
        return number if fits else None
    return value if type(value) is kind else None
