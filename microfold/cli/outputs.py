"""Output options: names of files and folders, or ``-`` for standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import typer

from microfold.errors import InputError

STANDARD_OUTPUT = Path("-")


def named(path: Path | None) -> Path | None:
    """Return the path of an output that is binary or consists of several files, and so needs a name.

    Raises:
        BadParameter: the path is ``-``.
    """
    if path == STANDARD_OUTPUT:
        raise typer.BadParameter("this output cannot be written to standard output ('-'); pass a name")
    return path


def write_text(path: Path, text: str) -> None:
    """Write a text to a file or to standard output."""
    from microfold.support.files import write_file

    if path == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        write_file(path, text)


def check_one_text(path: Path | None, others: Mapping[str, object]) -> None:
    """Check that only one option writes to standard output.

    Args:
        others: other options that write to standard output, with their values.

    Raises:
        InputError: several options would write to it.
    """
    given = [name for name, value in others.items() if value]
    if path == STANDARD_OUTPUT and given:
        raise InputError(f"--output - and {given[0]} would both write to standard output; remove one of them")
