"""Evaluates what depends on nothing but constants.

    %a = constant int32[2] [1, 2]                        %c = constant int32[2] [11, 22]
    %b = constant int32[2] [10, 20]              ->      %y: int32[2] = add(%x, %c)
    %c: int32[2] = add(%a, %b)
    %y: int32[2] = add(%x, %c)

A result much larger than what it is computed from stays computed: flash is scarcer than the time to pad, tile or
broadcast.
"""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.rewrite import Operand, Site, forward_rewrite
from microfold.ir.types import Array, Tensor
from microfold.passes import PassContext, function_pass

TINY = 1024  # bytes that a result may always have
GROWTH = 4  # times the operands' bytes that a larger result may have


@function_pass(opt_level=2)
def fold_constant(graph: Graph, context: PassContext) -> Graph:
    """Replace nodes over constants by their results."""

    def fold(site: Site[None]) -> list[Operand] | None:
        node = site.node
        if node.op.has_effect:
            return None
        # Rules see rewritten operands, so that chains fold in one sweep. An epilogue's operands are not
        # rewritten for them: a constant that was one before is enough.
        tensors: dict[object, Tensor] = {}
        for index, value in enumerate(node.inputs):
            array = site.array(index)
            if value is not None and array is None:
                context.declined(node, f"%{value.name} is not constant")
                return None
            if value is not None and array is not None:
                tensors[value] = Tensor(value.type, array)
        for step in node.epilogue:
            for value in step.operands:
                array = graph.constants.get(value)
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
        results: list[Array] = [t.data for t in node.evaluate({v: tensors[v] for v in node.operands})]
        context.fired(node, f"all operands are constant; {size} bytes")
        return [
            site.builder.constant(array, value.type, value.name)
            for value, array in zip(node.outputs, results, strict=True)
        ]

    return forward_rewrite(graph, fold)
