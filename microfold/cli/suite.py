"""Suites: one command for many models, targets and levels, on several processes, with cached results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from textwrap import shorten
from typing import Any

import typer
from msgspec import Struct
from msgspec.structs import replace

from microfold.cli.common import print_json, progress_bar
from microfold.cli.notices import say
from microfold.cli.options import CodeOptions, SuiteOptions
from microfold.cli.pass_options import PassOptions
from microfold.errors import (
    PROBLEM,
    InputError,
    MicrofoldError,
    ModelFormatError,
    TypeRuleError,
    UnsupportedModelError,
)
from microfold.frontend.text_form import SUFFIX
from microfold.options import OPTIMIZE
from microfold.support.json_text import to_json
from microfold.target import load
from microfold.workers.dispatch import Dispatcher
from microfold.workers.executor import open_executor

Report = dict[str, Any]

# Maximum number of skipped files that a notice names.
_SHOWN = 5
# Maximum length of a problem in a table, in characters.
_LETTERS = 120


class SuiteTask(Struct, frozen=True):
    """One model for one target at one level: a task for a worker.

    Attributes:
        name: name of the model's file.
        file: path of the file in the suite.
        data: content of the file.
        runs: number of input sets.
        key: digest of everything that determines the result.
    """

    name: str
    file: str
    data: bytes
    target: str
    code: CodeOptions
    passes: PassOptions
    runs: int
    key: str


def models_of(folder: Path) -> list[Path]:
    """Return all .tflite models in a folder and its subfolders; print a notice of models in text form.

    Raises:
        InputError: the folder contains no models.
    """
    if not folder.is_dir():
        raise InputError(f"--suite must be a folder of models; {folder} is not a folder")
    found = sorted(folder.rglob("*.tflite"))
    if not found:
        raise InputError(f"--suite must contain .tflite models; {folder} has none")
    others = [str(path.relative_to(folder)) for path in sorted(folder.rglob(f"*{SUFFIX}"))]
    if others:
        shown = ", ".join(others[:_SHOWN]) + (", …" if others[_SHOWN:] else "")
        say(f"a suite uses only .tflite models; skipped: {shown}")
    return found


def run_suite(
    suite: SuiteOptions,
    function: Callable[[Path, SuiteTask], object],
    models: Sequence[Path],
    targets: Sequence[str],
    code: CodeOptions,
    passes: PassOptions,
    *,
    runs: int = 1,
    quiet: bool = False,
) -> list[Report]:
    """Return a report of each model, target and level, in this order.

    If a model cannot be compiled or run, its report has the model, the target, the level, an ``error`` and
    ``refused``: whether microfold does not support the model. Other errors may be temporary, so they are not
    cached.

    Args:
        function: returns the report of a model file. It must be a function of a module, because worker
            processes find it by name.
        runs: number of input sets for each model.
        quiet: show no progress bar.

    Raises:
        InputError: no target or level is given, a level is unknown, or `open_executor` raises it.
        TargetError: a target cannot be read.
    """
    levels = split_words(suite.levels) if suite.levels else [code.optimize]
    for name, given in (("--target", targets), ("--levels", levels)):
        if not given:
            raise InputError(f"{name} must list at least one value, separated by commas; got none")
    for target in targets:
        load(target)
    for level in levels:
        if level not in OPTIMIZE:
            raise InputError(f"--levels may contain {', '.join(OPTIMIZE)}; got {level!r}")
    files = [(model, _relative(model, suite.suite)) for model in models]
    pieces = [
        _piece(
            function.__name__,
            model,
            file,
            target,
            replace(code, optimize=level),
            passes,
            runs,
        )
        for model, file in files
        for target in targets
        for level in levels
    ]
    found = {piece.key: report for piece in pieces if (report := _stored(suite.cache, piece.key)) is not None}
    missing = {piece.key: piece for piece in pieces if piece.key not in found}
    total = len(found) + len(missing)
    if missing:
        executor = open_executor(suite.workers, suite.scheduler)
        with progress_bar("suite", quiet) as progress, closing(executor):
            progress(len(found), total)
            lanes = [f"worker {number}" for number in range(executor.lanes)]
            work: Dispatcher[SuiteTask, Report] = Dispatcher(executor, partial(_do, function), lanes)
            work.add(missing.values())
            for done in work.results():
                piece = done.task
                report = done.result if done.result is not None else _failed(piece, done.problem)
                found[piece.key] = report
                if "error" not in report or report["refused"]:
                    _store(suite.cache, piece.key, report)
                progress(len(found), total)
    return [found[piece.key] | {"level": piece.code.optimize, "file": piece.file} for piece in pieces]


def _relative(model: Path, folder: Path | None) -> str:
    return (model.relative_to(folder) if folder is not None else model).as_posix()


def rows(reports: Sequence[Report]) -> list[Report]:
    """Return the reports as table rows: models with equal names are named by file, errors have one line."""
    files: dict[str, set[str]] = {}
    for report in reports:
        files.setdefault(report["model"], set()).add(report["file"])
    found: list[Report] = []
    for report in reports:
        name = report["model"] if len(files[report["model"]]) == 1 else report["file"]
        error = {"error": _in_short(report["error"])} if "error" in report else {}
        found.append(report | {"model": name} | error)
    return found


def _in_short(error: str) -> str:
    """Return the first problem that a message lists, and the number of the others."""
    problems = [line for line in error.splitlines() if line.startswith(PROBLEM)]
    if not problems:
        return error.splitlines()[0]
    more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
    return shorten(problems[0].removeprefix(PROBLEM), _LETTERS, placeholder=" …") + more


def split_words(text: str) -> list[str]:
    """Return the words of a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _do(function: Callable[[Path, SuiteTask], object], piece: SuiteTask, _lane: str) -> Report:
    from microfold.support.scratch import scratch_folder

    with scratch_folder() as folder:
        path = folder / piece.name
        path.write_bytes(piece.data)
        try:
            # Round-trip through JSON, so that new and cached reports are equal.
            return json.loads(to_json(function(path, piece)))
        except (ModelFormatError, TypeRuleError, UnsupportedModelError) as error:
            return _failed(piece, str(error), refused=True)
        except MicrofoldError as error:
            return _failed(piece, str(error))


def _failed(piece: SuiteTask, problem: str, *, refused: bool = False) -> Report:
    return {"model": Path(piece.name).stem, "target": piece.target, "error": problem, "refused": refused}


def all_well(reports: Sequence[Report]) -> bool:
    """Return whether all models are exact or unsupported, without any other error."""
    return all(report["refused"] if "error" in report else report.get("exact", True) for report in reports)


def finish(reports: Sequence[Report], show: Callable[[], None], as_json: bool) -> None:
    """Print reports, and exit with code 1 unless all is well.

    Args:
        show: prints the reports as tables.
    """
    if as_json:
        print_json(reports)
    else:
        show()
    if not all_well(reports):
        raise typer.Exit(1)


def _piece(
    what: str, model: Path, file: str, target: str, code: CodeOptions, passes: PassOptions, runs: int
) -> SuiteTask:
    from microfold.support.files import read_file

    data = read_file(model)
    named = [Path(target)] if target.endswith(".toml") else []
    named += [path for path in (code.database, code.labels, *(code.custom or ())) if path is not None]
    parts = [what, _own_digest(), model.name, target, repr(code), repr(passes), str(runs)]
    digest = hashlib.sha256("\0".join(parts).encode())
    for content in (data, *(read_file(path) for path in named)):
        digest.update(hashlib.sha256(content).digest())
    return SuiteTask(model.name, file, data, target, code, passes, runs, digest.hexdigest())


@cache
def _own_digest() -> str:
    """Return a digest of microfold's own files and of the tools that it measures with."""
    from microfold.support import resources
    from microfold.support.tools import run_tool

    digest = hashlib.sha256()
    folders = (Path(__file__).parents[1], resources.template_dir(), resources.target_dir())
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm", "cc"):
        try:
            digest.update(run_tool([tool, "--version"], Path(), 20.0, tool).stdout.encode())
        except MicrofoldError:
            digest.update(b"none")
    return digest.hexdigest()


def _stored(cache_folder: Path | None, key: str) -> Report | None:
    """Return a cached result, or None if it is missing or damaged."""
    if cache_folder is None:
        return None
    try:
        found = json.loads((cache_folder / key[:2] / f"{key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None  # type: ignore[reportUnknownVariableType]


def _store(cache_folder: Path | None, key: str, report: Report) -> None:
    from microfold.support.files import write_files

    if cache_folder is not None:
        write_files(cache_folder / key[:2], {f"{key}.json": to_json(report) + "\n"})
