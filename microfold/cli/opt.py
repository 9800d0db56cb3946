"""microfold opt"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from microfold.cli.common import load_custom, load_graph, print_decisions, print_json, working
from microfold.cli.default_target import PORTABLE
from microfold.cli.options import Constants, Custom, Json, Model, TargetName
from microfold.cli.outputs import check_one_text, write_text
from microfold.cli.pass_options import PassOptions

if TYPE_CHECKING:
    from microfold.ir.graph import Graph


def opt(
    model: Model,
    context: PassOptions,
    passes: Annotated[
        str,
        typer.Option(
            "--passes",
            metavar="PASS{OPTION=VALUE,…},…",
            help="Passes to run, in this order; 'default' is the default pipeline.",
        ),
    ] = "default",
    explain: Annotated[
        str,
        typer.Option(
            "--explain",
            metavar="PASS",
            help="List each match site of this pass instead, and why the pass fired or not.",
        ),
    ] = "",
    target: TargetName = None,
    tree: Annotated[
        bool, typer.Option("--tree", help="Print expressions as trees instead of one node per line.")
    ] = False,
    constants: Constants = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Write the text, with all constants, to this file; - is standard output.",
            show_default=False,
        ),
    ] = None,
    custom: Custom = None,
    as_json: Json = False,
) -> None:
    """Run passes on a model or a graph in text form. Print the result.

    Listed passes run at any --opt-level. Passes that need kernel costs use the kernels of the target.
    Default target: host.
    """
    check_one_text(output, {"--json": as_json, "--explain": explain})
    with working(f"compiling {model.name}", as_json):
        from msgspec.structs import replace

        from microfold import target as targets
        from microfold.cli.passes_text import explained_by, known_passes, listed_names, parse_passes
        from microfold.kernels.selection.node_cost import NodeCosts
        from microfold.kernels.selection.objective import objective_of
        from microfold.lowering.selection_result import MemoryEstimator
        from microfold.options import Options
        from microfold.passes.context import Decision
        from microfold.passes.kinds import Sequential
        from microfold.transform.requested.io_types import with_io_types

        load_custom(custom)
        steps = parse_passes(passes)
        graph = load_graph(model, context.input_shape or (), context.signature)
        decisions: list[Decision] = []
        with context.context() as chosen:
            if chosen.pipeline is not None:
                steps = [chosen.pipeline if step.name == chosen.pipeline.name else step for step in steps]
            explained = explained_by(explain, steps) if explain else set[str]()
            required = set(chosen.required_pass).union(*map(listed_names, steps))
            core = targets.load(PORTABLE if target is None else target)
            costs = NodeCosts(core, objective_of(Options()))
            chosen = replace(
                chosen,
                required_pass=required,
                channel_block=core.channel_block,
                node_cost=costs,
                node_scratch=costs.scratch,
                arenas=MemoryEstimator(core, Options()),
                half_precision=core.half_precision,
            )
            chosen = chosen.reporting_to(decisions.append)
            asked = context.added_to(Options())
            graph = with_io_types(graph, asked.input_type, asked.output_type, chosen)
            result = Sequential(steps, known=known_passes)(graph, chosen)
    if output is not None:
        write_text(output, _text(result, tree, constants=True))
    if explain:
        print_decisions(explain, [d for d in decisions if d.pass_name in explained], as_json)
    elif as_json:
        names = [step.name for step in steps]
        print_json({"model": graph.name, "passes": names, "text": _text(result, tree, constants)})
    elif output is None:
        print(_text(result, tree, constants), end="")


def _text(graph: Graph, tree: bool, constants: bool) -> str:
    from microfold.ir.text import to_text
    from microfold.ir.tree import to_tree

    return to_tree(graph, elide=not constants) if tree else to_text(graph, elide=not constants)
