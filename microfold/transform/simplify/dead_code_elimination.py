"""Removes nodes and states that no output depends on.

    %a: int8[4] = clip(%x) {minimum=0.0, maximum=6.0}            %y: int8[4] = clip(%x) {minimum=-1.0, ...}
    %y: int8[4] = clip(%x) {minimum=-1.0, maximum=1.0}    ->
    (%y is the output)

Nodes with effects stay, and so do their operands. Writing a state is an effect only if its content is read. A
state that is never read, or read only to compute its own successor, is removed with the nodes that compute
it.
"""

from __future__ import annotations

from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.rewrite import remove_dead_nodes
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=1)
def dead_code_elimination(graph: Graph, context: PassContext) -> Graph:
    """Remove dead nodes, and states that cannot be observed."""
    live = observed(graph)
    state = tuple(s for s in graph.state if s.value in live)
    for dropped in graph.state:
        if dropped.value not in live:
            context.fired(f"state %{dropped.value.name}", "no output depends on it")
    slim = replace(graph, state=state) if len(state) != len(graph.state) else graph
    result = remove_dead_nodes(slim)
    kept = set(result.nodes)
    for node in graph.nodes:
        if node not in kept:
            context.fired(node, "no output depends on it")
    return result


def observed(graph: Graph) -> set[Value]:
    """Return the values that an output or an effect depends on, in this run or a later one."""
    live: set[Value] = set(graph.outputs)
    size = -1
    while size != len(live):
        size = len(live)
        live |= {state.next for state in graph.state if state.value in live}
        for node in reversed(graph.nodes):
            if node.op.has_effect or not live.isdisjoint(node.outputs):
                live.update(node.operands)
    return live
