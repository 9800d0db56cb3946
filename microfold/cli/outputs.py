"""Options for outputs: names of files and folders, or ``-`` for the standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import typer

from microfold.errors import InputError

STANDARD_OUTPUT = Path("-")


def named(path: Path | None) -> Path | None:
    """Return the path of an output that must have a name, as it is no text, or several files.

    Raises:
        BadParameter: it is ``-``.
    """
    if path == STANDARD_OUTPUT:
        raise typer.BadParameter("this output cannot go to the standard output ('-'); give it a name")
    return path


def write_text(path: Path, text: str) -> None:
    """Write a text to a file, or to the standard output."""
    from microfold.support.files import write_file

    if path == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        write_file(path, text)


def check_one_text(path: Path | None, others: Mapping[str, object]) -> None:
    """Check that the standard output gets one text only.

    Args:
        others: options that write to it, too, where they are given.

    Raises:
        InputError: several would write to it.
    """
    given = [name for name, value in others.items() if value]
    if path == STANDARD_OUTPUT and given:
        raise InputError(
            f"--output - and {given[0]} would both write to the standard output; give one of them"
        )
