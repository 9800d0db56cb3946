"""microfold tune"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from microfold.cli.common import print_json, progress_bar, read_graph, working
from microfold.cli.default_target import CORE, choose_target
from microfold.cli.notices import say
from microfold.cli.options import CodeOptions, Json, Scheduler, TargetName, Workers
from microfold.cli.panels import BOARDS
from microfold.cli.pass_options import PassOptions
from microfold.errors import InputError, ToolError
from microfold.options import OPTIMIZE

if TYPE_CHECKING:
    from microfold.tune.measure import Runner
    from microfold.tune.space import Subject

DATABASE = Path("microfold-tune.db")
# Maximum number of reasons shown for each level if no program could be measured.
_REASONS = 3


def tune(
    code: CodeOptions,
    passes: PassOptions,
    model: Annotated[
        Path | None,
        typer.Argument(
            help="A .tflite file, a C array of one, or a graph in text form (.mf).",
            metavar="MODEL",
            show_default=False,
        ),
    ] = None,
    target: TargetName = None,
    candidates: Annotated[
        int,
        typer.Option(
            "--candidates",
            min=1,
            metavar="N",
            help="Maximum number of variants per layer, and of whole-program alternatives, to measure.",
        ),
    ] = 8,
    max_trials: Annotated[
        int | None,
        typer.Option(
            "--max-trials",
            min=1,
            metavar="N",
            help="Maximum number of variants and alternatives to measure, over all layers and levels; the "
            "most promising are first.",
            show_default=False,
        ),
    ] = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(
            "--layers",
            metavar="LAYER,…",
            help="Tune only these layers, by name or number, or all layers of an operator.",
            show_default=False,
        ),
    ] = None,
    all_levels: Annotated[
        bool, typer.Option("--all-levels", help="Tune for all --optimize levels, and compare them.")
    ] = False,
    runner_command: Annotated[
        list[str] | None,
        typer.Option(
            "--runner-command",
            metavar="COMMAND",
            rich_help_panel=BOARDS,
            help="Command that flashes {elf} to a board and prints the board's output. Repeat it for several "
            "identical boards.",
            show_default=False,
        ),
    ] = None,
    runner: Annotated[
        list[str] | None,
        typer.Option(
            "--runner",
            metavar="FILE.py:FUNCTION",
            rich_help_panel=BOARDS,
            help="Python function that does the same: it receives the path of the image, and returns the "
            "board's output.",
            show_default=False,
        ),
    ] = None,
    board_file: Annotated[
        Path | None,
        typer.Option(
            "--board-file",
            metavar="FILE",
            rich_help_panel=BOARDS,
            help="Description of the board (.toml), see docs/tuning.md.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.1,
            metavar="SECONDS",
            rich_help_panel=BOARDS,
            help="Time limit for the output of a board, in seconds.",
        ),
    ] = 120.0,
    retry: Annotated[
        bool, typer.Option("--retry", help="Also repeat measurements that failed in earlier runs.")
    ] = False,
    workers: Workers = 0,
    scheduler: Scheduler = "",
    export: Annotated[
        bool, typer.Option("--export", help="Print the database as text; without a model.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure candidate kernels and store the results for builds.

    Kernels run on a simulated core, which uses its cycle model, or on a board. Results in the database are
    not measured again, so an interrupted command continues where it stopped.
    """
    from microfold.tune.database import Database

    path = code.database or DATABASE
    if export:
        if model is not None:
            raise InputError("tune --export prints a database; remove either the model or --export")
        with Database(path) as database:
            print(database.export(), end="")
        return
    if model is None:
        raise InputError("tune requires a model, or --export")
    target = choose_target(target, CORE, as_json)
    from microfold.cli.suite import split_words
    from microfold.tune.text import print_tuning
    from microfold.tune.tune import Tuner
    from microfold.workers.executor import ExecutorLost, check_scheduler, open_executor

    if scheduler:
        check_scheduler(scheduler)
    subjects = [
        _subject(model, target, replace(code, optimize=level), passes)
        for level in (OPTIMIZE if all_levels else [code.optimize])
    ]
    measuring, boards = _runner(runner_command or [], runner or [], board_file, timeout)
    measuring.check(subjects[0].target, subjects[0].options)
    with Database(path, create=True) as database, progress_bar("programs measured", as_json) as progress:
        executor = open_executor(workers, scheduler)
        lanes = boards or [f"worker {number}" for number in range(executor.lanes)]
        try:
            tuner = Tuner(
                executor,
                measuring,
                lanes,
                database,
                candidates=candidates,
                max_trials=max_trials,
                layers=split_words(",".join(layers or ())),
                retry=retry,
                progress=progress,
            )
            found = [tuner.tune(subject) for subject in subjects]
        except ExecutorLost as error:
            raise ToolError(
                f"{error}; {path} has the measurements so far: repeat the command to continue"
            ) from None
        except KeyboardInterrupt:
            say(f"{path} has the measurements so far; repeat the command to continue")
            raise
        finally:
            executor.close()
    if not any(each.programs or each.total_after is not None for each in found):
        every = (reason for each in found for reason in [*each.left_out, *each.failed_before][:_REASONS])
        reasons = "; ".join(dict.fromkeys(every))
        raise ToolError(f"tuning must measure at least one program; all measurements failed: {reasons}")
    if as_json:
        print_json(found)
    else:
        print_tuning(model.name, found, path)


def _runner(
    commands: Sequence[str], functions: Sequence[str], board_file: Path | None, timeout: float
) -> tuple[Runner, list[str]]:
    """Return the runner that measures, and the commands of the boards, if any."""
    from microfold.tune.board import load_board
    from microfold.tune.board_runner import BoardRunner, check_command, entry_command
    from microfold.tune.entry import check_entry
    from microfold.tune.measure import SimulatedRunner

    boards = [*commands, *map(entry_command, functions)]
    if board_file is None:
        if boards:
            raise InputError("measuring on a board requires --board-file, see docs/tuning.md")
        return SimulatedRunner(), []
    if not boards:
        raise InputError("--board-file requires --runner-command or --runner, which flashes the board")
    if len(set(boards)) < len(boards):
        raise InputError("every board must have its own command; two commands are equal")
    for command in boards:
        check_command(command)
    for function in functions:
        check_entry(function)
    return BoardRunner(load_board(board_file), timeout), boards


def _subject(model: Path, target: str, code: CodeOptions, passes: PassOptions) -> Subject:
    """Return the model with its options, in the form that workers receive."""
    with working(f"reading {model.name}", True):
        from microfold import target as targets
        from microfold.cli.common import load_custom
        from microfold.ir.text import to_text
        from microfold.tune.space import Subject

        if passes.before or passes.after:
            raise InputError(
                "tune measures builds of the default pipeline; it cannot be combined with --pass-before or "
                "--pass-after: remove them"
            )
        load_custom(code.custom)
        graph, _ = read_graph(model, passes.input_shape or (), passes.signature)
        with passes.context() as context:
            return Subject(
                code.name or model.stem,
                to_text(graph),
                targets.load(target),
                passes.added_to(code.options()),
                context.opt_level,
                tuple(context.disabled_pass),
                tuple(context.required_pass),
                tuple(Path(file).absolute() for file in code.custom or ()),
            )
