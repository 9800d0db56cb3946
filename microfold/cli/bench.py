"""microfold bench"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from microfold.cli.common import compile_model, measured_costs, prepared, print_json, working
from microfold.cli.default_target import CORE, choose_target, split_targets
from microfold.cli.options import CodeOptions, Json, SuiteOptions, TargetName
from microfold.cli.panels import SUITES
from microfold.cli.pass_options import PassOptions
from microfold.errors import InputError

if TYPE_CHECKING:
    from microfold.cli.suite import SuiteTask
    from microfold.reporting.schema import BuildReport


def bench(
    code: CodeOptions,
    passes: PassOptions,
    suite: SuiteOptions,
    models: Annotated[
        list[Path] | None,
        typer.Argument(help="One or more .tflite files.", metavar="MODEL", show_default=False),
    ] = None,
    every_model: Annotated[
        bool,
        typer.Option(
            "--every-model",
            rich_help_panel=SUITES,
            help="Include the models of a suite that have no figures of other runtimes.",
        ),
    ] = False,
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels",
            rich_help_panel=SUITES,
            help="List the kernels that the builds of a suite choose and their largest gain, instead of "
            "running them.",
        ),
    ] = False,
    target: TargetName = None,
    as_json: Json = False,
) -> None:
    """Count instructions per layer, and measure flash, RAM and stack.

    Instructions are counted on a simulated core. Several models are shown in one table, one row per model.
    With --target all, or a comma-separated list, the table has one row per core. With --suite, the table
    includes known figures of other runtimes. Default target: cortex-m4; with --suite: all targets that have
    such figures. With --suite and --kernels, the table has one row per kernel, for all models of the suite.
    """
    if suite.suite is not None:
        if models:
            raise InputError("--suite cannot be combined with models; remove either of them")
        if kernels:
            _list_kernels(suite.suite, suite, choose_target(target, CORE, as_json), code, passes, as_json)
            return
        _bench_suite(suite.suite, suite, target, code, passes, every_model, as_json)
        return
    for option, given in (("--every-model", every_model), ("--kernels", kernels)):
        if given:
            raise InputError(f"{option} requires --suite DIR")
    if not models:
        raise InputError("bench requires a model, or --suite DIR")
    if target is not None and len(targets := split_targets(target)) > 1:
        _bench_cores(models, suite, targets, code, passes, as_json)
        return
    suite.check_unused()
    target = choose_target(target, CORE, as_json)
    single = len(models) == 1 and not as_json
    reports = [_measure(model, target, code, passes, as_json, single) for model in models]
    if as_json:
        print_json(reports[0] if len(models) == 1 else reports)
    elif not single:
        from microfold.reporting.terminal.bench import print_bench_summary

        print_bench_summary(reports)


def _bench_cores(
    models: Sequence[Path],
    suite: SuiteOptions,
    targets: Sequence[str],
    code: CodeOptions,
    passes: PassOptions,
    as_json: bool,
) -> None:
    """Print a table with a row for each model and core."""
    from microfold.cli.suite import finish, rows, run_suite
    from microfold.reporting.terminal.bench import print_bench_suite

    reports = run_suite(suite, bench_piece, models, targets, code, passes, quiet=as_json)
    finish(reports, lambda: print_bench_suite(rows(reports)), as_json)


def _bench_suite(
    folder: Path,
    suite: SuiteOptions,
    target: str | None,
    code: CodeOptions,
    passes: PassOptions,
    every_model: bool,
    as_json: bool,
) -> None:
    from microfold.cli.suite import finish, models_of, rows, run_suite
    from microfold.reporting.terminal.bench import print_bench_suite, print_comparison
    from microfold.reporting.terminal.figures import cycles_errors
    from microfold.verification.benchmark.suite import (
        compare,
        load_peers,
        models_with_peers,
        targets_with_peers,
    )

    peers = load_peers()
    models = models_of(folder) if every_model else models_with_peers(folder, peers)
    if every_model:
        target = choose_target(target, CORE, as_json)
    targets = split_targets(target) if target is not None else targets_with_peers(peers)
    reports = run_suite(suite, bench_piece, models, targets, code, passes, quiet=as_json)
    done = [report for report in reports if "error" not in report]

    def show() -> None:
        if every_model or suite.levels or len(done) < len(reports):
            print_bench_suite(rows(reports))
        compared = [row for report in done for row in compare(report, peers)]
        print_comparison(compared, cycles_errors(done))

    finish(reports, show, as_json)


def bench_piece(path: Path, piece: SuiteTask) -> BuildReport:
    """Return the bench report of one piece of a suite."""
    return _measure(path, piece.target, piece.code, piece.passes, as_json=True)


def _list_kernels(
    folder: Path,
    suite: SuiteOptions,
    target: str,
    code: CodeOptions,
    passes: PassOptions,
    as_json: bool,
) -> None:
    """Print the use of each kernel in the builds of a suite."""
    from microfold.cli.suite import finish, models_of, rows, run_suite
    from microfold.reporting.kernel_wins import kernel_uses
    from microfold.reporting.terminal.kernel_uses import print_kernel_uses

    targets, models = split_targets(target), models_of(folder)
    reports = rows(run_suite(suite, kernels_piece, models, targets, code, passes, quiet=as_json))
    finish(reports, lambda: print_kernel_uses(kernel_uses(reports), reports), as_json)


def kernels_piece(path: Path, piece: SuiteTask) -> dict[str, Any]:
    """Return the gains of the kernels in one build of a suite."""
    from microfold.lowering.optimised import ImportedModel
    from microfold.reporting.kernel_wins import kernel_wins

    with prepared(path, piece.target, piece.code, piece.passes) as (graph, _, core, options, context):
        costs = measured_costs(piece.code, core, options)
        wins = kernel_wins(ImportedModel(graph, core, options, context, costs))
    return {"model": path.stem, "target": core.name, "kernels": wins}


def _measure(
    model: Path, target: str, code: CodeOptions, passes: PassOptions, as_json: bool, show: bool = False
) -> BuildReport:
    """Return the bench report of one model, and print it in full if `show`."""
    program = compile_model(model, target, code, passes, as_json)
    from microfold.reporting.data import bench_report
    from microfold.reporting.terminal.bench import print_bench
    from microfold.simulate.program import simulator
    from microfold.verification.measure import measure
    from microfold.verification.verify import input_sets

    calls = input_sets([buffer.type for buffer in program.inputs], 4)[3:]
    with working(f"running {model.name} on {program.target.name}", as_json), simulator(program) as machine:
        result = machine.run(calls)
        core = program.target.cycle_model
        cycles = machine.trace(calls, core) if core is not None else None
    with working("measuring code size", as_json):
        report = bench_report(program, measure(program), result, cycles)
    if show:
        print_bench(program, report)
    return report
