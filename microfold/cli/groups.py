"""Option groups: options that several commands share, as one `Struct` parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, cast, get_type_hints

import typer
from msgspec import Struct

# Base class of all command-line errors. Older versions of typer take it from click, newer ones contain a
# copy. typer exports only one of its subclasses, `BadParameter`.
UsageError = cast("type[Exception]", typer.BadParameter.__base__)


class OutputClosedError(Exception):
    """Error if the reader of the output has closed it, e.g. ``| head``."""


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer, with the fields of each `Struct` parameter as parameters of their own.

    The command's other options come first, then the options of the groups.

    Args:
        command: function whose parameters are annotated for typer. The fields of a `Struct` parameter must
            also be annotated for typer, and have defaults.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Struct)
    }
    own = inspect.signature(command).parameters.values()
    parameters = [_parameter(p.name, hints[p.name], p.default) for p in own if p.name not in groups]
    for group in groups.values():
        types = get_type_hints(group, include_extras=True)
        defaults = zip(group.__struct_fields__, group.__struct_defaults__, strict=True)
        parameters += [_parameter(name, types[name], default) for name, default in defaults]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        for name, group in groups.items():
            given = {option: arguments.pop(option) for option in group.__struct_fields__}
            arguments[name] = group(**given)
        try:
            command(**arguments)
        except BrokenPipeError:  # click would exit with 1, as for a failed check
            raise OutputClosedError from None

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
