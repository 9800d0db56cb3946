"""Application of all commands, and the conversion of errors to messages and exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from microfold import __version__
from microfold.cli.common import print_json
from microfold.cli.exit_codes import CLOSED_OUTPUT
from microfold.cli.groups import OutputClosedError, UsageError, expand_groups
from microfold.cli.notices import say
from microfold.cli.values import PlainCommand, PlainGroup
from microfold.errors import MicrofoldError, UnsupportedModelError
from microfold.support.files import reason

# Each command is the function of this name in the module of this name. The modules import nothing heavy at
# the top level, so that `--help` stays fast.
COMMANDS = (
    "build",
    "export",
    "verify",
    "bench",
    "diff",
    "quantize",
    "inspect",
    "run",
    "kernels",
    "explain",
    "prove",
    "tradeoffs",
    "tune",
    "report",
    "ir",
    "opt",
    "passes",
    "targets",
    "doctor",
)

# Environment variable that prints the traceback of an unexpected exception.
TRACEBACK = "MICROFOLD_TRACEBACK"


def application(commands: Sequence[str] = COMMANDS) -> typer.Typer:
    """Return the application with these commands."""
    app = typer.Typer(
        name="microfold",
        cls=PlainGroup,
        help="Ahead-of-time compiler from .tflite models to C99 for Arm Cortex-M.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_version)
    for name in commands:
        command = getattr(import_module(f"microfold.cli.{name}"), name)
        app.command(name, cls=PlainCommand)(expand_groups(command))
    return app


def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    cmake_dir: Annotated[
        bool,
        typer.Option("--cmake-dir", help="Print the folder for CMake's find_package(microfold) and exit."),
    ] = False,
) -> None:
    if version:
        print(f"microfold {__version__}")
        raise typer.Exit
    if cmake_dir:
        from microfold.support.resources import cmake_dir as folder

        print(folder())
        raise typer.Exit


@cache
def _parser(commands: Sequence[str]) -> Any:
    """Return the parser of these commands, which is built from the functions' signatures."""
    return typer.main.get_command(application(commands))


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code.

    Every error is printed as a message or, with ``--json``, as a JSON object.
    """
    try:
        # Building a command is slow: if the first word names a command, build only that one.
        named = tuple(word for word in arguments[:1] if word in COMMANDS)
        parser = _parser(named or COMMANDS)
        status: Any = parser(list(arguments), prog_name="microfold", standalone_mode=False)
        sys.stdout.flush()
    except MicrofoldError as error:
        return _fail(arguments, _error_as_data(error), str(error))
    except UsageError as error:
        usage: Any = error
        if "--json" not in arguments:
            with contextlib.suppress(OSError):
                usage.show()
            return 2
        path = usage.ctx.command_path if usage.ctx is not None else "microfold"
        message = f"{usage.format_message()} `{path} --help` shows the usage."
        return _fail(arguments, {"error": message, "problems": []}, "")
    except (OutputClosedError, BrokenPipeError):
        return CLOSED_OUTPUT
    except typer.Abort:  # Ctrl-C, in older versions of typer
        raise KeyboardInterrupt from None
    except OSError as error:
        where = error.filename or "a file or the output"
        return _fail_plainly(arguments, f"cannot read or write {where}: {reason(error)}")
    except MemoryError:
        return _fail_plainly(arguments, "microfold ran out of memory; use a smaller model")
    except Exception as error:
        return _fail_by_defect(arguments, error)
    return status if isinstance(status, int) else 0


def _fail(arguments: Sequence[str], data: Mapping[str, Any], message: str, status: int = 2) -> int:
    if "--json" in arguments:
        try:
            print_json(data)
            sys.stdout.flush()
        except BrokenPipeError:
            return CLOSED_OUTPUT
        except OSError as error:
            message = f"cannot write the output: {reason(error)}"
        else:
            return status
    say(message)
    return status


def _fail_plainly(arguments: Sequence[str], message: str, status: int = 2) -> int:
    return _fail(arguments, {"error": message, "problems": []}, message, status)


def _fail_by_defect(arguments: Sequence[str], error: Exception) -> int:
    """Report an unexpected exception in one line, with the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f for f in reversed(frames) if "microfold" in Path(f.filename).parts), frames[-1])
    message = f"internal error in microfold: {type(error).__name__} in "
    message += f"{Path(place.filename).name}:{place.lineno}: {str(error)[:200]}; "
    message += f"please report it with the model ({TRACEBACK}=1 in the environment prints the traceback)"
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    return _fail_plainly(arguments, message, 3)


def _error_as_data(error: MicrofoldError) -> dict[str, Any]:
    problems: list[dict[str, str]] = []
    if isinstance(error, UnsupportedModelError):
        problems = [{"where": p.where, "reason": p.reason, "hint": p.hint} for p in error.problems]
    return {"error": str(error), "problems": problems}
