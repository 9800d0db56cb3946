"""Runs the command line within this process, which is faster than a process each."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

from microfold.cli.app import run


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


def microfold(*arguments: object) -> Outcome:
    """The exit code and what was printed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run([str(argument) for argument in arguments])
    return Outcome(status, out.getvalue(), err.getvalue())


def succeed(*arguments: object) -> str:
    """What a command prints that must end well."""
    result = microfold(*arguments)
    assert result.status == 0, result.out + result.err
    return result.out


def refuse(*arguments: object) -> str:
    """The message of a command that must run into an error of the user's; with ``--json`` it is the same."""
    result = microfold(*arguments)
    assert result.status == 2, result.out + result.err
    assert "Traceback" not in result.err
    assert "defect" not in result.err
    return result.err


def refuse_as_json(*arguments: object) -> Any:
    """The JSON object of such an error, which is all that is printed."""
    result = microfold(*arguments, "--json")
    assert (result.status, result.err) == (2, "")
    data = json.loads(result.out, parse_constant=_no_constant)
    assert set(data) == {"error", "problems"}
    return data


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")
