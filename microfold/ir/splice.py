"""Bodies put in place of what runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Step, Value
from microfold.support.frozen import frozen


@frozen(eq=False)
class Spliced:
    """A body on the values of its caller.

    Attributes:
        nodes: copies of its nodes, with values of their own.
        outputs: what stands for its outputs.
        next: what stands for the next content of each of its states.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    next: tuple[Value, ...]


def splice(
    body: Graph,
    arguments: Sequence[Value],
    state: Sequence[Value] = (),
    names: Mapping[str, str] | None = None,
) -> Spliced:
    """A copy of a body's nodes that reads the caller's values; its constants are shared by all copies.

    Args:
        arguments: stand for the inputs.
        state: stand for the contents of the states.
        names: what the caller calls the body's own subgraphs, where it is not as the body does.
    """
    names = names or {}
    stands = dict(zip(body.inputs, arguments, strict=True))
    stands |= dict(zip((s.value for s in body.state), state, strict=True))

    def of(value: Value) -> Value:
        return stands.get(value, value)

    nodes: list[Node] = []
    for node in body.nodes:
        inputs = tuple(of(value) if value is not None else None for value in node.inputs)
        epilogue = tuple(Step(step.op, tuple(map(of, step.operands))) for step in node.epilogue)
        outputs = tuple(replace(value) for value in node.outputs)
        op = node.op.with_bodies([names.get(name, name) for name in node.op.bodies])
        stands |= dict(zip(node.outputs, outputs, strict=True))
        nodes.append(Node(op, inputs, outputs, epilogue))
    return Spliced(tuple(nodes), tuple(map(of, body.outputs)), tuple(of(s.next) for s in body.state))
