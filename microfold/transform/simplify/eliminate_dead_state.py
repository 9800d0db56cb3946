"""Replaces states that never change by constants, and merges states that are always equal.

    state %s: int8[4] initial [1, 2, 3, 4] next %s     ->     %s = constant int8[4] [1, 2, 3, 4]

    state %s: int8[4] initial [0, 0, 0, 0] next %n
    state %t: int8[4] initial [0, 0, 0, 0] next %n     ->     state %s: int8[4] initial [0, 0, 0, 0] next %n

An example are weights that a model keeps in resource variables: as constants they move from RAM to flash.
`dead_code_elimination` removes states that no output depends on. All bits stay the same.
"""

from __future__ import annotations

from msgspec.structs import replace

from microfold.ir.graph import Graph, State
from microfold.ir.node import Value, resolve, rewire
from microfold.ir.types import Array, TensorType
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=1)
def eliminate_dead_state(graph: Graph, context: PassContext) -> Graph:
    """Remove redundant states until nothing changes."""
    while (result := _eliminate(graph, context)) is not graph:
        graph = result
    return graph


def _eliminate(graph: Graph, context: PassContext) -> Graph:
    """Run one round. A round may make the successors of two states equal, which the next one then merges."""
    constants: dict[Value, Array] = dict(graph.constants)
    first: dict[tuple[TensorType, bytes, Value], Value] = {}
    replaced: dict[Value, Value] = {}
    kept: list[State] = []
    for state in graph.state:
        after = constants.get(state.next)
        unchanged = after is not None and after.tobytes() == state.initial.tobytes()
        if state.next is state.value or unchanged:
            context.fired(f"state %{state.value.name}", "it always holds its initial content")
            constants[state.value] = state.initial
            continue
        key = (state.value.type, state.initial.tobytes(), state.next)
        other = first.setdefault(key, state.value)
        if other is not state.value:
            context.fired(f"state %{state.value.name}", f"it always equals %{other.name}")
            replaced[state.value] = other
            continue
        context.declined(f"state %{state.value.name}", "its content changes")
        kept.append(state)
    if len(kept) == len(graph.state):
        return graph
    kept = [replace(state, next=resolve(state.next, replaced)) for state in kept]
    nodes = [rewire(node, replaced) for node in graph.nodes]
    return replace(graph, state=tuple(kept)).with_nodes(nodes, constants=constants, replaced=replaced)
