"""Gives every output and every next state separate storage.

    graph @g(%x: int8[4]) -> (%x, %y, %y) {          graph @g(%x: int8[4]) -> (%x#1, %y, %y#1) {
      %y: int8[4] = clip(%x) {...}             ->      %y: int8[4] = clip(%x) {...}
    }                                                  %x#1: int8[4] = copy(%x)
                                                       %y#1: int8[4] = copy(%y)
                                                     }

Code generation allocates memory only for values that nodes compute. An output may also be an input, a
constant or a state, a view of one of these, or the same bytes as another output. Each of these outputs
becomes a copy. A view of a computed value that is no output itself shares that value's memory and needs no
copy.
"""

from __future__ import annotations

from msgspec.structs import replace

from microfold.ir.graph import Graph, State
from microfold.ir.in_place import updated_states
from microfold.ir.node import Node, Value, make_node
from microfold.ops.movement.copy import Copy
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=0, mandatory=True)
def materialize_outputs(graph: Graph, context: PassContext) -> Graph:
    """Insert copies so that outputs and next states are distinct, computed values."""
    producers = graph.producers()
    # The next value of a state that is updated in place is no output, which would need other memory.
    updated = updated_states(graph)
    claimed: set[Value] = set(updated)
    copies: list[Node] = []

    def own(value: Value, what: str) -> Value:
        root = _storage(value, producers)
        if root in producers and root not in claimed:
            claimed.add(root)
            return value
        reason = "another output is the same bytes" if root in producers else "no node computes its bytes"
        context.fired(f"{what} %{value.name}", reason)
        copies.append(make_node(Copy(), [value], [value.name]))
        return copies[-1].output

    outputs = tuple(own(value, "output") for value in graph.outputs)
    # A state that is never assigned stays in its place.
    state = tuple(
        s if s.next is s.value or s.next in updated else State(s.value, s.initial, own(s.next, "next state"))
        for s in graph.state
    )
    if not copies:
        return graph
    return replace(graph, outputs=outputs, state=state, nodes=(*graph.nodes, *copies))


def _storage(value: Value, producers: dict[Value, Node]) -> Value:
    """Return the value that owns the bytes: views resolve to their operand."""
    while value in producers:
        node = producers[value]
        if not node.op.is_view or node.epilogue or node.inputs[0] is None:
            break
        value = node.inputs[0]
    return value
