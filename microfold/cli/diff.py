"""microfold diff"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from microfold.cli.common import print_json, working
from microfold.cli.options import CodeOptions, Json, Model, TargetName
from microfold.cli.outputs import named
from microfold.cli.pass_options import PassOptions
from microfold.errors import InputError

if TYPE_CHECKING:
    from microfold.verification.tensor_trace.dump import Dump


def diff(
    model: Model,
    code: CodeOptions,
    passes: PassOptions,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="DUMP", help="File with the recorded trace.", show_default=False),
    ] = None,
    target: TargetName = None,
    port: Annotated[
        str,
        typer.Option(
            "--port",
            help="Read the trace from this serial port or pyserial URL instead of DUMP.",
            show_default=False,
        ),
    ] = "",
    baud: Annotated[int, typer.Option("--baud", min=1, help="Baud rate of --port.")] = 115_200,
    runs: Annotated[
        int, typer.Option("--runs", min=1, metavar="N", help="Number of complete runs to read from --port.")
    ] = 1,
    wait: Annotated[
        float, typer.Option("--wait", min=0.1, help="Time limit for each record from --port, in seconds.")
    ] = 30.0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            callback=named,
            metavar="PATH",
            help="Save the received bytes in this file.",
            show_default=False,
        ),
    ] = None,
    show_profile: Annotated[bool, typer.Option("--profile", help="Show the ticks of each layer.")] = False,
    as_json: Json = False,
) -> None:
    """Compare a tensor trace from a device with the reference.

    The trace comes from a build with --taps, whose options are optional here, because the trace contains
    them. Exit code 1 if a tensor is wrong.
    """
    from microfold.support.files import read_file, write_file
    from microfold.verification.tensor_trace.dump import Dump

    if (file is None) == (not port):
        raise InputError("diff requires either DUMP or --port, and not both")
    if file is not None:
        data = read_file(file)
    else:
        from microfold.verification.tensor_trace.line import receive

        with working(f"reading {port}", as_json):
            data = receive(port, baud, runs, wait)
    if output is not None:
        write_file(output, data)
    records = Dump(data)
    _check(records, str(file or port))
    from microfold.cli.rebuild import rebuild
    from microfold.reporting.diff import TraceComparison, diff_report
    from microfold.reporting.diff_text import print_diff, print_profile
    from microfold.verification.tensor_trace.diagnosis import Diagnosis
    from microfold.verification.tensor_trace.profile import profile

    program, build = rebuild(records, model, target, code, passes, as_json)
    with working("comparing", as_json):
        diagnosis = Diagnosis(program)
        results = [diagnosis.check(run) for run in records.runs(program, build)]
        ticks = profile(program, [result.run for result in results])
    comparison = TraceComparison(program, build, records, results, ticks)
    if as_json:
        print_json(diff_report(comparison))
    else:
        print_diff(comparison)
        if show_profile:
            print_profile(comparison)
    if not comparison.equal:
        raise typer.Exit(1)


def _check(dump: Dump, name: str) -> None:
    """Raise InputError if the dump has no record that this version can read."""
    if dump.builds:
        return
    parser = dump.parser
    formats = ", ".join(map(str, sorted(parser.other_formats)))
    found = f"{len(parser.damaged)} damaged records" if parser.damaged else "no records"
    if formats:
        found = f"records of format {formats}, which this version cannot read,"
    raise InputError(
        f"a dump must contain complete records of a build with --taps; {name} has {found} "
        f"in {parser.total:,} bytes; forward all bytes of the tap function unchanged and in order"
        + ("" if parser.total else ", and check that the model runs")
    )
