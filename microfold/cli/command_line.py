"""The command line that makes a build again, as generated files state it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from microfold.cli.options import CodeOptions
from microfold.cli.pass_options import WATCHING, PassOptions


def build_command(models: Sequence[Path], target: str, code: CodeOptions, passes: PassOptions) -> str:
    """`microfold build` with the options that differ from their defaults.

    Files are named without folders, and what only shows or measures is left out: the same build has the same
    text wherever it is made.
    """
    words = ["microfold", "build", *(model.name for model in models), "--target", Path(target).name]
    return shlex.join([*words, *_given(code), *_given(passes)])


def _given(group: CodeOptions | PassOptions) -> Iterator[str]:
    hints = get_type_hints(type(group), include_extras=True)
    for field in dataclasses.fields(group):
        value: Any = getattr(group, field.name)
        if value == field.default or field.name in WATCHING:
            continue
        # Within Annotated, typer takes the first name for the default.
        flag = hints[field.name].__metadata__[0].default
        for each in value if isinstance(value, list) else [value]:  # type: ignore[reportUnknownVariableType]
            text = each.name if isinstance(each, Path) else each
            yield flag if each is True else f"{flag}={text}"
