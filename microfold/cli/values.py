"""Commands of typer with grouped options, and values that are converted without pydantic."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

from microfold.cli.panels import write_groups

_NUMBER = re.compile(r"[0-9]{1,18}")


class PlainCommand(TyperCommand):
    """Command that converts simple values itself, and whose help shows options in groups.

    Newer versions of typer validate every value with pydantic, even if no value is given. Importing and
    preparing pydantic needs more time than many commands. It still validates all other values, with its own
    messages.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_groups(self.get_params(ctx), ctx, formatter)


class PlainGroup(TyperGroup):
    """Group of commands that converts simple values itself, as `PlainCommand` does."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))


def _plain(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        validated = getattr(parameter, "get_runtime_param", None)
        if validated is not None and not isinstance(validated, partial):
            parameter.get_runtime_param = partial(_Plain, validated)
    return parameters


class _Plain:
    """Converter of a parameter's values, in place of typer's own."""

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
    """Return the value converted to `kind`, or None if it is not simple, or invalid."""
    if kind is Path and isinstance(value, str | Path):
        return Path(value) if not os.path.exists(value) or os.access(value, os.R_OK) else None
    if kind is int and isinstance(value, str) and _NUMBER.fullmatch(value):
        number = int(value)
        fits = (info.min is None or number >= info.min) and (info.max is None or number <= info.max)
        return number if fits else None
    return value if type(value) is kind else None
