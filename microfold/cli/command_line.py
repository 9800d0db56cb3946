"""Command line that reproduces a build, as stated in the generated files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from microfold.cli.options import CodeOptions
from microfold.cli.pass_options import WATCHING, PassOptions


def build_command(models: Sequence[Path], target: str, code: CodeOptions, passes: PassOptions) -> str:
    """Return the `microfold build` command with all options that differ from their defaults.

    It names files without folders, and omits options that only show or measure. The same build therefore has
    the same text on every machine.
    """
    words = ["microfold", "build", *(model.name for model in models), "--target", Path(target).name]
    return shlex.join([*words, *_given(code), *_given(passes)])


def _given(group: CodeOptions | PassOptions) -> Iterator[str]:
    hints = get_type_hints(type(group), include_extras=True)
    for name, default in zip(group.__struct_fields__, group.__struct_defaults__, strict=True):
        value: Any = getattr(group, name)
        if value == default or name in WATCHING:
            continue
        # Within `Annotated`, typer stores the first option name as the default.
        flag = hints[name].__metadata__[0].default
        for each in value if isinstance(value, list) else [value]:  # type: ignore[reportUnknownVariableType]
            text = each.name if isinstance(each, Path) else each
            yield flag if each is True else f"{flag}={text}"
