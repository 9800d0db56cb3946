"""Rebuild of the program that recorded a trace, from the model and the command in the trace."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from msgspec.structs import replace

from microfold import __version__
from microfold.cli.common import compile_model
from microfold.cli.default_target import PORTABLE, choose_target
from microfold.cli.groups import UsageError, expand_groups
from microfold.cli.options import CodeOptions, Model, TargetName
from microfold.cli.pass_options import PassOptions
from microfold.errors import InputError
from microfold.support.files import read_file

if TYPE_CHECKING:
    from microfold.codegen.tensor_trace import BuildText
    from microfold.program import Program
    from microfold.verification.tensor_trace.dump import Dump


def rebuild(
    dump: Dump, model: Path, target: str | None, code: CodeOptions, passes: PassOptions, quiet: bool
) -> tuple[Program, int]:
    """Return the program and its build id, which is one of the builds in the dump.

    Args:
        target, code, passes: options of the build; if all have their defaults, those in the dump are used.

    Raises:
        InputError: the dump was recorded with another model, other options or another version.
        MicrofoldError: the model cannot be compiled.
    """
    given = target is not None or code != CodeOptions() or passes != PassOptions()
    if given:
        core = choose_target(target, PORTABLE, quiet)
        program = compile_model(model, core, replace(code, taps=True), passes, quiet)
        build = _build_id(program)
        if build not in dump.builds:
            raise InputError(
                f"the trace must be from {model.name} with these options and microfold {__version__}, build "
                f"{_text(build)}; {_described(dump)}: pass the options of the flashed build, or none"
            )
        return program, build
    return _by_its_text(dump, model, quiet)


def _by_its_text(dump: Dump, model: Path, quiet: bool) -> tuple[Program, int]:
    """Return program and build id, by the build command in the first record of a run."""
    from microfold.frontend import text_form, tflite

    data = read_file(model) if model.suffix == text_form.SUFFIX else tflite.read_file(model)
    sha256 = hashlib.sha256(data).hexdigest()
    texts = {build: found.text for build, found in dump.builds.items() if found.text is not None}
    if not texts:
        raise InputError(
            "the trace must contain the first record of a run, which has the options of the build; "
            f"{_described(dump)}: pass --target and the other options of the build"
        )
    own = {build: text for build, text in texts.items() if text.sha256 == sha256}
    if not own:
        raise InputError(
            f"the trace must be from {model.name}, whose SHA-256 is {sha256}; {_described(dump)}: "
            "pass the model that was compiled, or compile and flash this one"
        )
    if len(own) > 1:
        raise InputError(
            f"only one build of {model.name} can be compared at a time; {_described(dump)}: "
            "pass the options of one of them"
        )
    ((build, text),) = own.items()
    program = compile_as(text, model, quiet)
    if _build_id(program) != build:
        raise InputError(
            f"the build of this trace cannot be reproduced: microfold {text.version} made build "
            f"{_text(build)} with `{text.command}`, but microfold {__version__} makes build "
            f"{_text(_build_id(program))}; use microfold {text.version} with the same labels and target "
            "file, or rebuild and flash the firmware"
        )
    return program, build


def compile_as(text: BuildText, model: Path, quiet: bool) -> Program:
    """Compile the model with the command of a dump, and set the origin that the dump names.

    Only options that change the C are used: a dump must not write files or choose compiler arguments.
    """
    target, code, passes = parse_command(text.command)
    code = replace(
        code,
        name=code.name or Path(text.file).stem,
        labels=_beside(model, code.labels) if code.labels is not None else None,
        external_flags="",
        custom=None,  # a dump must not run Python files
        taps=True,
    )
    passes = passes.unwatched
    if Path(target).suffix == ".toml":
        target = str(_beside(model, Path(target)))
    program = compile_model(model, target, code, passes, quiet)
    assert program.origin is not None
    return replace(program, origin=replace(program.origin, file=text.file, command=text.command))


def _beside(model: Path, named: Path) -> Path:
    """Return the path of a file without its folder: in the current folder, else in the model's."""
    here = Path(named.name)
    return here if here.is_file() else model.parent / here


def parse_command(command: str) -> tuple[str, CodeOptions, PassOptions]:
    """Return the target and the options of a build's command line."""
    found: list[tuple[str, CodeOptions, PassOptions]] = []

    def build(_model: Model, code: CodeOptions, passes: PassOptions, target: TargetName = None) -> None:
        found.append((PORTABLE if target is None else target, code, passes))

    application = typer.Typer(add_completion=False)
    application.command()(expand_groups(build))
    try:
        words = shlex.split(command)
        if words[:2] != ["microfold", "build"] or "--help" in words:
            raise ValueError
        application(words[2:], standalone_mode=False)
    except (UsageError, ValueError):
        pass
    if not found:
        raise InputError(
            "the trace must contain the `microfold build` command of its build; got "
            f"{command!r}: pass --target and the other options of the build"
        )
    return found[0]


def _build_id(program: Program) -> int:
    from microfold.codegen.emit import emit_build

    return int(emit_build(program).id.rstrip("u"), 16)


def _text(build: int) -> str:
    from microfold.reporting.diff import build_text

    return build_text(build)


def _described(dump: Dump) -> str:
    """Return a description of the builds in a dump, as a clause of an error message."""
    found: Sequence[str] = [
        f"build {_text(build)}"
        + (f" of {each.text.file}, SHA-256 {each.text.sha256}: `{each.text.command}`" if each.text else "")
        for build, each in dump.builds.items()
    ]
    return f"it is from {'; '.join(found)}"
