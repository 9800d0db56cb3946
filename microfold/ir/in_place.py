"""States that are updated in place: their next content needs no storage of its own."""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.node import Value


def updated_states(graph: Graph) -> dict[Value, Value]:
    """Return the states that can be updated in place, by the value that becomes their next content.

    The value must be the result of an operator that `updates_in_place` its first operand. The node must be
    the
    only reader of the state, so that the update is valid in any order of the nodes.
    """
    producers, uses = graph.producers(), graph.use_counts()
    found: dict[Value, Value] = {}
    for state in graph.state:
        node = producers.get(state.next)
        if node is None or not node.op.updates_in_place or node.epilogue:
            continue
        if node.inputs[0] is state.value and uses[state.value] == 1 and state.next not in found:
            found[state.next] = state.value
    return found
