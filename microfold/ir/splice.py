"""Splicing: copies of a body in place of the node that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, Node, Value


class Spliced(Struct, frozen=True, eq=False):
    """Copy of a body with operands of its caller.

    Attributes:
        nodes: copies of the body's nodes, with new values.
        outputs: values that replace the body's outputs.
        next: values that replace the next content of each of the body's states.
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
    """Return a copy of a body's nodes that reads the caller's values; all copies share its constants.

    Args:
        arguments: values that replace the inputs.
        state: values that replace the contents of the states.
        names: the caller's names of the body's subgraphs, if they differ from the body's names.
    """
    names = names or {}
    stands = dict(zip(body.inputs, arguments, strict=True))
    stands |= dict(zip((s.value for s in body.state), state, strict=True))

    def of(value: Value) -> Value:
        return stands.get(value, value)

    nodes: list[Node] = []
    for node in body.nodes:
        inputs = tuple(of(value) if value is not None else None for value in node.inputs)
        epilogue = tuple(EpilogueStep(step.op, tuple(map(of, step.operands))) for step in node.epilogue)
        outputs = tuple(replace(value) for value in node.outputs)
        op = node.op.with_bodies([names.get(name, name) for name in node.op.bodies])
        stands |= dict(zip(node.outputs, outputs, strict=True))
        nodes.append(Node(op, inputs, outputs, epilogue))
    return Spliced(tuple(nodes), tuple(map(of, body.outputs)), tuple(of(s.next) for s in body.state))
