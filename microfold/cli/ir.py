"""microfold ir"""

from __future__ import annotations

from typing import Annotated

import typer

from microfold.cli.common import load_custom, load_graph, print_decisions, print_json, working
from microfold.cli.options import Constants, Custom, External, Json, Model, Signature


def ir(
    model: Model,
    after: Annotated[
        str,
        typer.Option("--after", help="Print the graph after this pass; 'all': after the whole pipeline."),
    ] = "",
    explain: Annotated[
        str,
        typer.Option(
            "--explain", help="List each match site of this pass instead, and why the pass fired or not."
        ),
    ] = "",
    custom: Custom = None,
    external: External = None,
    signature: Signature = None,
    constants: Constants = False,
    as_json: Json = False,
) -> None:
    """Print the graph as text, as imported or after a pass."""
    with working(f"compiling {model.name}", as_json):
        from microfold.cli.passes_text import check_pass, explained_by
        from microfold.external.registry import resolve
        from microfold.ir.text import to_text
        from microfold.passes.context import Decision, PassContext
        from microfold.passes.instruments import Snapshot
        from microfold.pipeline import default_pipeline, optimize

        load_custom(custom)
        graph = load_graph(model, signature=signature)
        pipeline = default_pipeline()
        if after not in ("", "all"):
            check_pass(after, pipeline.names())
        explained = explained_by(explain, [pipeline]) if explain else set[str]()
        decisions: list[Decision] = []
        snapshot = Snapshot(after)
        context = PassContext(
            instruments=[snapshot], externals=resolve(external or ()), sink=decisions.append
        )
        final = optimize(graph, context)
    if explain:
        print_decisions(explain, [d for d in decisions if d.pass_name in explained], as_json)
        return
    shown = {"": graph, "all": final}.get(after) or snapshot.graph or graph
    text = to_text(shown, elide=not constants)
    if as_json:
        print_json({"model": graph.name, "after": after, "text": text})
    else:
        print(text, end="")
