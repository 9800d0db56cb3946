"""Passes that help each other, run until none of them finds more to do."""

from __future__ import annotations

from dataclasses import replace

from microfold.ir.graph import Graph
from microfold.passes import Decision, PassContext, Sequential


class UntilStable(Sequential):
    """A `Sequential` that is repeated until it returns its graph; each decision is recorded once.

    Its passes must each get closer to something, so that it ends.
    """

    def _run(self, graph: Graph, context: PassContext) -> Graph:
        sink = context.sink
        seen: set[tuple[str, str, bool, str]] = set()

        def once(decision: Decision) -> None:
            key = (decision.pass_name, decision.where, decision.fired, decision.reason)
            if sink is not None and key not in seen:
                seen.add(key)
                sink(decision)

        context = replace(context, sink=once)
        while True:
            result = super()._run(graph, context)
            if result is graph:
                return graph
            graph = result
