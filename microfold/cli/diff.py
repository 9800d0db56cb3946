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
    from microfold.verification.taps.dump import Dump


def diff(
    model: Model,
    code: CodeOptions,
    passes: PassOptions,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="DUMP", help="A file of what the device wrote.", show_default=False),
    ] = None,
    target: TargetName = None,
    port: Annotated[
        str,
        typer.Option(
            "--port", help="Instead of DUMP: read this serial port, or URL of pyserial.", show_default=False
        ),
    ] = "",
    baud: Annotated[int, typer.Option("--baud", min=1, help="Of the port.")] = 115_200,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Runs to wait for at the port.")] = 1,
    wait: Annotated[
        float, typer.Option("--wait", min=0.1, help="Seconds to wait for each record at the port.")
    ] = 30.0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            callback=named,
            help="Keep what came over the port in this file.",
            show_default=False,
        ),
    ] = None,
    show_profile: Annotated[bool, typer.Option("--profile", help="Show how long each layer took.")] = False,
    as_json: Json = False,
) -> None:
    """Compare what a device wrote (build --taps) with the reference; exit 1 if a tensor is wrong.

    The options of the build need not be given: the device names them.
    """
    from microfold.support.files import read_file, write_file
    from microfold.verification.taps.dump import Dump

    if (file is None) == (not port):
        raise InputError("diff compares a file or what comes over a port; give either DUMP or --port")
    if file is not None:
        data = read_file(file)
    else:
        from microfold.verification.taps.line import receive

        with working(f"reading {port}", as_json):
            data = receive(port, baud, runs, wait)
    if output is not None:
        write_file(output, data)
    records = Dump(data)
    _check(records, str(file or port))
    from microfold.cli.rebuild import rebuild
    from microfold.report.diff import Comparison, diff_report
    from microfold.report.diff_text import print_diff, print_profile
    from microfold.verification.taps.diagnosis import Diagnosis
    from microfold.verification.taps.profile import profile

    program, build = rebuild(records, model, target, code, passes, as_json)
    with working("comparing", as_json):
        diagnosis = Diagnosis(program)
        results = [diagnosis.check(run) for run in records.runs(program, build)]
        ticks = profile(program, [result.run for result in results])
    comparison = Comparison(program, build, records, results, ticks)
    if as_json:
        print_json(diff_report(comparison))
    else:
        print_diff(comparison)
        if show_profile:
            print_profile(comparison)
    if not comparison.equal:
        raise typer.Exit(1)


def _check(dump: Dump, name: str) -> None:
    """There must be records that this version reads."""
    if dump.builds:
        return
    parser = dump.parser
    formats = ", ".join(map(str, sorted(parser.other_formats)))
    found = f"{len(parser.damaged)} damaged ones" if parser.damaged else "none"
    if formats:
        found = f"some of format {formats}, which this version does not read"
    raise InputError(
        f"a dump must have whole records of a build with --taps; {name} has {found} "
        f"in {parser.total:,} bytes; write all bytes that the tap function gets, unchanged and in order"
        + ("" if parser.total else ", and check that the model runs")
    )
