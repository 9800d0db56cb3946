"""The command line. Exit codes: 0 good, 1 a check failed, 2 bad input or usage."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from microfold import __version__
from microfold.errors import InputError, MicrofoldError, UnsupportedModelError

if TYPE_CHECKING:
    from microfold.program import Program
    from microfold.target import Target

app = typer.Typer(
    name="microfold",
    help="Compile .tflite models, ahead of time, into plain C99 for microcontrollers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Model = Annotated[Path, typer.Argument(help="The model: a .tflite file.", show_default=False)]
TargetName = Annotated[
    str, typer.Option("--target", "-t", help="A target's name, or a path to your own .toml.")
]
Name = Annotated[str, typer.Option("--name", help="Prefix of all C names; default: the file's name.")]
Optimize = Annotated[str, typer.Option("--optimize", help="size, balanced or speed.")]
Io = Annotated[
    str, typer.Option("--io", help="Inputs and outputs live in the arena, or the caller hands them in.")
]
SingleFile = Annotated[bool, typer.Option("--single-file", help="Weights and code in one .c file.")]
Section = Annotated[str, typer.Option("--weights-section", help="Linker section of the weights.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def main() -> None:
    """Entry point of the console script."""
    as_json = "--json" in sys.argv[1:]
    try:
        app()
    except MicrofoldError as error:
        if as_json:
            print(json.dumps(_error_as_data(error), indent=2))
        else:
            print(f"microfold: {error}", file=sys.stderr)
        sys.exit(2)


def _error_as_data(error: MicrofoldError) -> dict[str, Any]:
    problems: list[dict[str, str]] = []
    if isinstance(error, UnsupportedModelError):
        problems = [{"where": p.where, "reason": p.reason, "hint": p.hint} for p in error.problems]
    return {"error": str(error), "problems": problems}


@contextmanager
def _working(what: str, quiet: bool) -> Generator[None]:
    """A spinner on the terminal while something takes long."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2))


def _compile(model: Path, target: str, name: str, options: dict[str, Any], quiet: bool) -> Program:
    from microfold import target as targets
    from microfold.compiler import compile_file
    from microfold.options import Options

    chosen = Options(**options)
    description = targets.load(target)
    with _working(f"compiling {model.name}", quiet):
        return compile_file(model, description, chosen, name=name)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"microfold {__version__}")
        raise typer.Exit


@app.command()
def build(
    model: Model,
    target: TargetName = "host",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the C files.")] = Path("."),
    name: Name = "",
    optimize: Optimize = "balanced",
    io: Io = "arena",
    single_file: SingleFile = False,
    weights_section: Section = "",
    as_json: Json = False,
) -> None:
    """Compile a model to C and write a report."""
    from microfold.codegen.emit import emit
    from microfold.files import write_files
    from microfold.measure import measure
    from microfold.report import build_report
    from microfold.tables import print_build

    options = {"optimize": optimize, "io": io, "single_file": single_file, "weights_section": weights_section}
    program = _compile(model, target, name, options, as_json)
    files = emit(program)
    with _working("measuring code size", as_json):
        measurement = measure(program)
    report = build_report(program, measurement)
    write_files(output, files | {"report.json": json.dumps(report, indent=2) + "\n"})
    if as_json:
        _print_json(report)
    else:
        print_build(program, report, output)


@app.command()
def verify(
    model: Model,
    target: TargetName = "host",
    inputs: Annotated[
        list[Path] | None,
        typer.Option(
            "--inputs", help="A .npy per model input: one input set, or several stacked.", show_default=False
        ),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, max=10_000, help="Input sets to make up.")] = 8,
    layers: Annotated[bool, typer.Option("--layers", help="List every differing layer.")] = False,
    name: Name = "",
    optimize: Optimize = "balanced",
    io: Io = "arena",
    single_file: SingleFile = False,
    weights_section: Section = "",
    as_json: Json = False,
) -> None:
    """Run the generated C and compare every tensor with the reference; exit 1 if any bit differs."""
    from microfold.report import verify_report
    from microfold.tables import print_verification
    from microfold.verify import input_sets
    from microfold.verify import verify as run_verify

    options = {"optimize": optimize, "io": io, "single_file": single_file, "weights_section": weights_section}
    program = _compile(model, target, name, options, as_json)
    types = [buffer.type for buffer in program.inputs]
    calls = _load_inputs(inputs, program) if inputs else input_sets(types, runs)
    with _working(f"running {len(calls)} input sets on {program.target.name}", as_json):
        result = run_verify(program, calls)
    if as_json:
        _print_json(verify_report(program, result))
    else:
        print_verification(program, result, every_layer=layers)
    if not result.exact:
        raise typer.Exit(1)


@app.command()
def bench(
    models: Annotated[list[Path], typer.Argument(help="One or more .tflite files.", show_default=False)],
    target: TargetName = "cortex-m4",
    name: Name = "",
    optimize: Optimize = "balanced",
    io: Io = "arena",
    single_file: SingleFile = False,
    weights_section: Section = "",
    as_json: Json = False,
) -> None:
    """Count instructions on a simulated core, per layer and in total; measure flash, RAM and stack.

    Several models give one table with a row each.
    """
    from microfold.report import bench_report
    from microfold.simulate.program import simulator
    from microfold.tables import print_bench, print_bench_summary
    from microfold.verify import input_sets

    options = {"optimize": optimize, "io": io, "single_file": single_file, "weights_section": weights_section}
    reports: list[dict[str, Any]] = []
    for model in models:
        program = _compile(model, target, name, options, as_json)
        calls = input_sets([buffer.type for buffer in program.inputs], 4)[3:]
        with (
            _working(f"running {model.name} on {program.target.name}", as_json),
            simulator(program) as machine,
        ):
            reports.append(bench_report(program, machine.run(calls)))
        if not as_json and len(models) == 1:
            print_bench(program, reports[0])
    if as_json:
        _print_json(reports[0] if len(models) == 1 else reports)
    elif len(models) > 1:
        print_bench_summary(reports)


@app.command()
def inspect(model: Model, as_json: Json = False) -> None:
    """Show operators, tensors, quantisation and MACs, and what is not supported."""
    from microfold.inspection import inspect_model
    from microfold.tables import print_inspection

    inspection = inspect_model(model)
    if as_json:
        _print_json(inspection)
    else:
        print_inspection(inspection)


@app.command()
def run(
    model: Model,
    inputs: Annotated[
        list[Path], typer.Option("--input", help="A .npy per model input.", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the outputs to this .npz.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a model on this machine, one call per input set, and print its outputs."""
    import numpy as np

    from microfold.host.session import Session

    program = _compile(model, "host", "", {}, as_json)
    calls = _load_inputs(inputs, program)
    with _working("compiling the C code", as_json):
        session = Session(program)
    results = [session.run(*call) for call in calls]
    if output is not None:
        stacked: dict[str, Any] = {
            f"output_{i}": np.stack([result[i] for result in results]) for i in range(len(program.outputs))
        }
        np.savez(output, **stacked)
    if as_json:
        _print_json({"outputs": [[array.tolist() for array in result] for result in results]})
        return
    for number, result in enumerate(results):
        for index, (array, buffer) in enumerate(zip(result, program.outputs, strict=True)):
            print(f'call {number}, output {index} "{buffer.value.name}" {buffer.type}:')
            print(np.array2string(array, threshold=64, max_line_width=100))


@app.command()
def kernels(
    model: Model,
    target: TargetName = "cortex-m4",
    optimize: Optimize = "balanced",
    as_json: Json = False,
) -> None:
    """Show every kernel considered for every layer: its cost, or why it does not fit."""
    from microfold import target as targets
    from microfold.compiler import explain_kernels
    from microfold.frontend import tflite
    from microfold.options import Options
    from microfold.tables import print_kernels

    layers = explain_kernels(tflite.load(model), targets.load(target), Options(optimize=optimize))
    if as_json:
        _print_json([
            {
                "op": site.node.op.name,
                "tensor": site.node.outputs[0].name,
                "candidates": [
                    {"kernel": c.kernel.name, "cost": c.cost, "reason": c.reason} for c in candidates
                ],
            }
            for site, candidates in layers
        ])  # fmt: skip
    else:
        print_kernels(layers)


@app.command()
def ir(
    model: Model,
    after: Annotated[
        str, typer.Option("--after", help="As this pass leaves it; 'all': after the whole pipeline.")
    ] = "",
    explain: Annotated[
        str,
        typer.Option(
            "--explain", help="Instead, list each place this pass looked at, and why it fired or not."
        ),
    ] = "",
    constants: Annotated[bool, typer.Option("--constants", help="Print large constants in full.")] = False,
    as_json: Json = False,
) -> None:
    """Print the graph in its text form: as imported, or after a pass of the default pipeline."""
    from microfold.frontend import tflite
    from microfold.instruments import Snapshot
    from microfold.ir.text import to_text
    from microfold.passes import Decision, PassContext, Sequential
    from microfold.pipeline import default_pipeline, optimize
    from microfold.transform import available

    graph = tflite.load(model)
    names = default_pipeline().names()
    for name in {after, explain} - {"", "all"} - names:
        raise InputError(
            f"there is no pass {name!r} in the pipeline; its passes are {', '.join(sorted(names))}"
        )
    decisions: list[Decision] = []
    snapshot = Snapshot(after)
    final = optimize(graph, PassContext(instruments=[snapshot], sink=decisions.append))
    if explain:
        step = available().get(explain)
        explained = step.names() | {explain} if isinstance(step, Sequential) else {explain}
        found = [decision for decision in decisions if decision.pass_name in explained]
        if as_json:
            _print_json([{"where": d.where, "fired": d.fired, "reason": d.reason} for d in found])
        else:
            print("\n".join(map(str, found)) or f"{explain}: nothing to look at")
        return
    shown = {"": graph, "all": final}.get(after) or snapshot.graph or graph
    text = to_text(shown, elide=not constants)
    if as_json:
        _print_json({"model": graph.name, "after": after, "text": text})
    else:
        print(text, end="")


@app.command("targets")
def list_targets(as_json: Json = False) -> None:
    """List the targets that ship with microfold."""
    from microfold import target as targets
    from microfold.tables import print_targets

    found: list[Target] = [targets.load(name) for name in targets.available()]
    if as_json:
        _print_json([
            {"name": t.name, "description": t.description, "features": sorted(t.features), "board": t.board}
            for t in found
        ])  # fmt: skip
    else:
        print_targets(found)


def _load_inputs(paths: list[Path], program: Program) -> list[tuple[Any, ...]]:
    """Arrays from .npy files: of the input's shape (one call), or stacked along a new first axis."""
    import numpy as np

    if len(paths) != len(program.inputs):
        raise InputError(f"the model has {len(program.inputs)} inputs; {len(paths)} files given")
    columns: list[list[Any]] = []
    for path, buffer in zip(paths, program.inputs, strict=True):
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path} is not a readable .npy file: {error}") from None
        if not isinstance(array, np.ndarray):
            raise InputError(f"{path} must hold one array (.npy); it holds several")
        if array.shape == buffer.type.shape:
            array = array[np.newaxis]
        if array.shape[1:] != buffer.type.shape or array.dtype != buffer.type.dtype.numpy or not len(array):
            raise InputError(
                f"{path} must hold {buffer.type}, or several stacked; "
                f"it holds {array.dtype}{list(array.shape)}"
            )
        columns.append(list(array))
    if len({len(column) for column in columns}) > 1:
        raise InputError(f"all inputs must have equally many sets; they have {[len(c) for c in columns]}")
    return list(zip(*columns, strict=True))
