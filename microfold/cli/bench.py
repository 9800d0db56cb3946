"""microfold bench"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from microfold.cli.common import compile_model, print_json, working
from microfold.cli.options import CodeOptions, Json, PassOptions, TargetName
from microfold.errors import InputError


def bench(
    code: CodeOptions,
    passes: PassOptions,
    models: Annotated[
        list[Path] | None, typer.Argument(help="One or more .tflite files.", show_default=False)
    ] = None,
    suite: Annotated[
        Path | None,
        typer.Option(
            "--suite",
            metavar="DIR",
            help="Instead of MODELS: those of this folder that other runtimes' figures are known for, and "
            "these beside them.",
            show_default=False,
        ),
    ] = None,
    target: TargetName = "",
    as_json: Json = False,
) -> None:
    """Count instructions on a simulated core, per layer and in total; measure flash, RAM and stack.

    Several models give one table with a row each. The default target is cortex-m4; for a suite, every target
    that figures are known for.
    """
    if suite is not None:
        if models:
            raise InputError("a suite has its own models; give either --suite or models")
        _bench_suite(suite, target, code, passes, as_json)
        return
    if not models:
        raise InputError("bench needs a model, or --suite DIR")
    single = len(models) == 1 and not as_json
    reports = [_measure(model, target or "cortex-m4", code, passes, as_json, single) for model in models]
    if as_json:
        print_json(reports[0] if len(models) == 1 else reports)
    elif not single:
        from microfold.report.terminal import print_bench_summary

        print_bench_summary(reports)


def _bench_suite(folder: Path, target: str, code: CodeOptions, passes: PassOptions, as_json: bool) -> None:
    from microfold.report.terminal import print_comparison
    from microfold.verification.benchmark.suite import (
        compare,
        load_peers,
        models_with_peers,
        targets_with_peers,
    )

    peers = load_peers()
    models = models_with_peers(folder, peers)
    targets = [target] if target else targets_with_peers(peers)
    reports = [_measure(model, name, code, passes, as_json) for name in targets for model in models]
    if as_json:
        print_json(reports)
    else:
        print_comparison([row for report in reports for row in compare(report, peers)])


def _measure(
    model: Path, target: str, code: CodeOptions, passes: PassOptions, as_json: bool, show: bool = False
) -> dict[str, Any]:
    """The bench report of one model; printed in full if it is to be shown."""
    program = compile_model(model, target, code, passes, as_json)
    from microfold.report.data import bench_report
    from microfold.report.terminal import print_bench
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
