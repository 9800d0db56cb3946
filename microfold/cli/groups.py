"""Options that several commands share, as one parameter."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, cast, get_type_hints

import typer

# Base of everything wrong with a command line. Older versions of typer take it from click, newer ones carry
# a copy; of all its subclasses typer exports only this one.
UsageError = cast("type[Exception]", typer.BadParameter.__base__)


class OutputClosedError(Exception):
    """Nobody reads the output any more, e.g. behind ``| head``."""


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command as typer wants it: each parameter that is a dataclass replaced by the dataclass's fields.

    The command's own options come first, those of the groups behind them.

    Args:
        command: a function whose parameters are annotated for typer. Where one is of a dataclass, the fields
            of that are annotated for typer and have defaults.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    own = inspect.signature(command).parameters.values()
    parameters = [_parameter(p.name, hints[p.name], p.default) for p in own if p.name not in groups]
    for group in groups.values():
        types = get_type_hints(group, include_extras=True)
        parameters += [_parameter(f.name, types[f.name], f.default) for f in dataclasses.fields(group)]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        for name, group in groups.items():
            given = {field.name: arguments.pop(field.name) for field in dataclasses.fields(group)}
            arguments[name] = group(**given)
        try:
            command(**arguments)
        except BrokenPipeError:  # click would exit as for a failed check
            raise OutputClosedError from None

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
