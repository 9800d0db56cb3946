"""Functions that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from microfold.cli.notices import say
from microfold.cli.options import CodeOptions
from microfold.cli.pass_options import PassOptions
from microfold.errors import InputError
from microfold.support.json_text import to_json

if TYPE_CHECKING:
    from microfold.compiler import ExplainedLayer
    from microfold.ir.graph import Graph
    from microfold.kernels.selection.measured import MeasuredCosts
    from microfold.lowering.prepared import PreparedProgram
    from microfold.options import Options
    from microfold.passes.context import Decision, PassContext
    from microfold.program import Program
    from microfold.target import Target
    from microfold.tune.plans import Plan


@contextmanager
def working(what: str, quiet: bool) -> Generator[None]:
    """Show a spinner on the terminal during a long operation, including the first imports."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


@contextmanager
def progress_bar(what: str, quiet: bool) -> Generator[Callable[[int, int], None]]:
    """Show a progress bar on the terminal, and yield its update function.

    The function expects the number of finished tasks and the number of known tasks. A single task can take
    minutes, so the bar is animated and counts seconds. More tasks can follow later, so the bar pulses while
    all known tasks are finished.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield _nothing
        return
    counts = TextColumn("{task.fields[counts]}")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), counts, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None, counts="")

        def update(done: int, total: int) -> None:
            # Without a total the bar pulses; `Progress.update` cannot reset the total to None.
            bar.tasks[0].total = total if done < total else None
            bar.update(task, completed=done, counts=f"{done} of {total}")

        yield update


def _nothing(_done: int, _total: int) -> None:
    """Ignore the progress."""


def print_json(data: Any) -> None:
    """Print data as JSON on stdout."""
    print(to_json(data))


def print_decisions(explained: str, decisions: Sequence[Decision], as_json: bool) -> None:
    """Print the decisions of a pass, one line for each match site."""
    if as_json:
        print_json([{"where": d.where, "fired": d.fired, "reason": d.reason} for d in decisions])
    else:
        print("\n".join(map(str, decisions)) or f"{explained}: no match sites")


def load_custom(files: Sequence[Path] | None) -> None:
    """Register the custom operators that these files define.

    Python files are executed. Callers must pass only files that the user has named, never a name that they
    have read from a file.
    """
    if files:
        from microfold.frontend.custom import load

        for file in files:
            load(file)


def load_graph(model: Path, input_shapes: Sequence[str] = (), signature: str | None = None) -> Graph:
    """Return the graph of a .tflite file, or of a graph in text form (.mf).

    Args:
        input_shapes: shapes of inputs with open dimensions, for a .tflite file, each ``NAME=1,49,10,1``.
        signature: signature whose subgraph of a .tflite file is imported; None: the first subgraph.

    Raises:
        MicrofoldError: the file cannot be read, is malformed or has parts that cannot be compiled.
    """
    return read_graph(model, input_shapes, signature)[0]


def read_graph(
    model: Path, input_shapes: Sequence[str] = (), signature: str | None = None
) -> tuple[Graph, bytes]:
    """Return the graph as `load_graph` does, and the bytes of the file."""
    from microfold.frontend.model_source import load_model
    from microfold.frontend.text_form import SUFFIX

    if model.suffix == SUFFIX and signature is not None:
        raise InputError("--signature requires a .tflite file; the text form has no signatures")
    if model.suffix == SUFFIX and input_shapes:
        raise InputError("--input-shape requires a .tflite file; the text form has no open dimensions")
    found = load_model(model, signature, input_shapes)
    assert found.data is not None  # a model from a file
    return found.graph, found.data


def compile_model(
    model: Path, target: str, code: CodeOptions, passes: PassOptions, quiet: bool, explain: bool = True
) -> Program:
    """Compile the model in a file for a target; for `explain` see `compile_graph`."""
    say_name(code.name, quiet)
    found = prepare_model(model, target, code, passes, quiet, explain)
    with working(f"compiling {model.name}", quiet):
        return found.program


def prepare_model(
    model: Path, target: str, code: CodeOptions, passes: PassOptions, quiet: bool, explain: bool = True
) -> PreparedProgram:
    """Select the kernels of the model in a file for a target; for `explain` see `compile_graph`."""
    with working(f"compiling {model.name}", quiet):
        from microfold.cli.command_line import build_command
        from microfold.compiler import prepare
        from microfold.frontend.labels import labels_of_model, read_labels
        from microfold.lowering.optimised import ImportedModel
        from microfold.program import origin_of

        with prepared(model, target, code, passes) as (graph, data, core, options, context):
            costs = measured_costs(code, core, options)
            plan = measured_plan(code, graph, core, options, context)
            origin = origin_of(model, data, build_command([model], target, code, passes))
            labels = labels_of_model(data) if code.labels is None else read_labels(code.labels)
            imported = ImportedModel(graph, core, options, with_plan(context, plan), costs=costs)
            found = prepare(imported, name=code.name, origin=origin, labels=labels, explain=explain)
            if plan is None:
                return found

            def finish(program: Program) -> Program:
                return with_measured_run(found.finish(program), plan)

            return replace(found, finish=finish)


def say_name(given: str, quiet: bool) -> None:
    """Print a notice on standard error if C names cannot start with the given name."""
    if not given or quiet:
        return
    from microfold.codegen.names import model_identifier

    name = model_identifier(given)
    if name != given:
        say(
            f"C names start with {name}, not {given!r}: a name must be a lower-case identifier of at most 64 "
            "characters, but not a C keyword, a standard header or a name that microfold reserves"
        )


def explain_model(
    model: Path,
    target: str,
    code: CodeOptions,
    passes: PassOptions,
    quiet: bool,
    dump_model: Path | None = None,
) -> list[ExplainedLayer]:
    """Return every layer of the model in a file, with all candidate kernels for a target."""
    with working(f"compiling {model.name}", quiet):
        from microfold.compiler import explain_kernels

        with prepared(model, target, code, passes) as (graph, _, core, options, context):
            costs = measured_costs(code, core, options)
            context = with_plan(context, measured_plan(code, graph, core, options, context))
            return explain_kernels(graph, core, options, context=context, costs=costs, dump_model=dump_model)


def measured_costs(code: CodeOptions, target: Target, options: Options) -> MeasuredCosts | None:
    """Return the measured costs for this build, or None without a database or applicable measurements.

    If no measurement of the database applies, a notice on standard error says so.

    Raises:
        InputError: the database cannot be read, or the board is ambiguous.
    """
    if code.database is None:
        if code.board:
            raise InputError("--board requires --database FILE")
        return None
    from microfold.tune.costs import load_costs, what_applies

    found = load_costs(code.database, target, options, code.board)
    if found is None:
        say(what_applies(code.database, target, options))
    return found


def measured_plan(
    code: CodeOptions, graph: Graph, target: Target, options: Options, context: PassContext
) -> Plan | None:
    """Return the database's choices for a build of this model, or None without a database.

    Raises:
        InputError: the database cannot be read, or the board is ambiguous.
    """
    if code.database is None:
        return None
    from microfold.tune.costs import load_plan

    return load_plan(code.database, graph, target, options, context, code.board)


def with_plan(context: PassContext, plan: Plan | None) -> PassContext:
    """Return the context with the choices of a plan."""
    from microfold.passes.choices import Choices

    return context if plan is None or not plan.trace else replace(context, choices=Choices(plan.trace))


def with_measured_run(program: Program, plan: Plan) -> Program:
    """Return the program with the measured cycles of a whole run, if the plan has them."""
    from microfold.tune.identity import code_digest

    return replace(program, measured_run=plan.cycles.get(code_digest(program)))


@contextmanager
def prepared(
    model: Path, target: str, code: CodeOptions, passes: PassOptions
) -> Generator[tuple[Graph, bytes, Target, Options, PassContext]]:
    """Yield the graph, the model file, the target, the options and the context of a command line."""
    from microfold import target as targets

    load_custom(code.custom)
    options = passes.added_to(code.options())
    core = targets.load(target)
    with passes.context() as context:
        graph, data = read_graph(model, passes.input_shape or (), passes.signature)
        yield graph, data, core, options, context
