"""Evaluates what depends on nothing but constants.

    %a = constant int32[2] [1, 2]                        %c = constant int32[2] [11, 22]
    %b = constant int32[2] [10, 20]              ->      %y: int32[2] = add(%x, %c)
    %c: int32[2] = add(%a, %b)
    %y: int32[2] = add(%x, %c)

A result much larger than what it is computed from stays computed: flash is scarcer than the time to pad, tile
or broadcast. Loops are not run: `partial_evaluate` unrolls those that end.
"""

from __future__ import annotations

from microfold.ir.graph import Graph, Value
from microfold.ir.interpret import functions
from microfold.ir.op import Op
from microfold.ir.rewrite import Site, forward_rewrite
from microfold.ir.types import Tensor
from microfold.ops.control_flow import While
from microfold.ops.copy import Copy
from microfold.passes import PassContext, function_pass

TINY = 1024  # bytes that a result may always have
GROWTH = 4  # times the operands' bytes that a larger result may have


@function_pass(opt_level=2)
def fold_constant(graph: Graph, context: PassContext) -> Graph:
    """Replace nodes over constants by their results."""

    def fold(site: Site[None]) -> list[Value] | None:
        node = site.node
        if node.op.has_effect or isinstance(node.op, Copy):  # a copy is there for its storage
            return None
        if _runs_loop(node.op, graph):
            context.declined(node, "it runs a loop, which might not end")
            return None
        tensors: dict[Value, Tensor] = {}
        for value in node.operands:
            array = site.array(value)
            if array is None:
                context.declined(node, f"%{value.name} is not constant")
                return None
            tensors[value] = Tensor(value.type, array)
        given = sum(tensor.type.nbytes for tensor in tensors.values())
        size = sum(value.type.nbytes for value in node.outputs)
        if size > max(TINY, GROWTH * given):
            context.declined(
                node, f"its result would take {size} bytes of flash; it is computed from {given} bytes"
            )
            return None
        context.fired(node, f"all operands are constant; {size} bytes")
        results = zip(node.outputs, node.evaluate(tensors, functions(graph)), strict=True)
        return [site.builder.constant(result.data, value.type, value.name) for value, result in results]

    return forward_rewrite(graph, fold)


def _runs_loop(op: Op, graph: Graph) -> bool:
    """Whether the operator is a loop, or one is in what it runs."""
    bodies = [graph.subgraphs[name] for name in op.bodies]
    return isinstance(op, While) or any(_runs_loop(node.op, body) for body in bodies for node in body.nodes)
