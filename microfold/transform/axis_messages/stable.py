"""What is repeated until nothing is left to do, with each decision recorded once."""

from __future__ import annotations

from dataclasses import replace

from microfold.ir.graph import Graph
from microfold.passes import Decision, PassContext, Sequential


def recording_once(context: PassContext) -> PassContext:
    """The context, with repeated decisions dropped."""
    sink = context.sink
    seen: set[tuple[str, str, bool, str]] = set()

    def once(decision: Decision) -> None:
        key = (decision.pass_name, decision.where, decision.fired, decision.reason)
        if sink is not None and key not in seen:
            seen.add(key)
            sink(decision)

    return replace(context, sink=once)


class UntilStable(Sequential):
    """A `Sequential` of passes that help each other, repeated until it returns its graph.

    Its passes must each get closer to something, so that it ends.
    """

    def _run(self, graph: Graph, context: PassContext) -> Graph:
        context = recording_once(context)
        while True:
            result = super()._run(graph, context)
            if result is graph:
                return graph
            graph = result
