"""All commands in one application, and what becomes of its errors."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, cast

import typer

from microfold import __version__
from microfold.cli.bench import bench
from microfold.cli.build import build
from microfold.cli.groups import expand_groups
from microfold.cli.inspect import inspect
from microfold.cli.ir import ir
from microfold.cli.kernels import kernels
from microfold.cli.opt import opt
from microfold.cli.passes import passes
from microfold.cli.run import run
from microfold.cli.targets import targets
from microfold.cli.verify import verify
from microfold.errors import MicrofoldError, UnsupportedModelError

# A command's module imports nothing heavy before its function is called: `--help` stays fast.
COMMANDS = (build, verify, bench, inspect, run, kernels, ir, opt, passes, targets)

# Base of everything wrong with a command line. Older versions of typer take it from click, newer ones carry
# a copy; of all its subclasses typer exports only this one.
_UsageError = cast("type[Exception]", typer.BadParameter.__base__)

app = typer.Typer(
    name="microfold",
    help="Compile .tflite models, ahead of time, into plain C99 for microcontrollers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in COMMANDS:
    app.command(command.__name__)(expand_groups(command))


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"microfold {__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point of the console script."""
    as_json = "--json" in sys.argv[1:]
    try:
        sys.exit(app(standalone_mode=False))
    except MicrofoldError as error:
        if as_json:
            print(json.dumps(_error_as_data(error), indent=2))
        else:
            print(f"microfold: {error}", file=sys.stderr)
    except _UsageError as error:
        usage: Any = error
        if as_json:
            print(json.dumps({"error": usage.format_message(), "problems": []}, indent=2))
        else:
            usage.show()
    except typer.Abort:  # Ctrl-C, in older versions of typer
        sys.exit(130)
    sys.exit(2)


def _error_as_data(error: MicrofoldError) -> dict[str, Any]:
    problems: list[dict[str, str]] = []
    if isinstance(error, UnsupportedModelError):
        problems = [{"where": p.where, "reason": p.reason, "hint": p.hint} for p in error.problems]
    return {"error": str(error), "problems": problems}
