"""Evaluates nodes with constant operands at compile time.

    %a = constant int32[2] [1, 2]                        %c = constant int32[2] [11, 22]
    %b = constant int32[2] [10, 20]              ->      %y: int32[2] = add(%x, %c)
    %c: int32[2] = add(%a, %b)
    %y: int32[2] = add(%x, %c)

The pass does not fold a node whose result is much larger than its operands, because flash is scarcer than the
time to pad, tile or broadcast. Folding also has a budget of operations and bytes (`microfold.ir.limits`).
Loops are not evaluated: `partial_evaluate` unrolls those with a known trip count.
"""

from __future__ import annotations

from dataclasses import dataclass

from microfold.ir.graph import Graph
from microfold.ir.interpret import functions
from microfold.ir.limits import (
    FOLD_BYTES,
    FOLD_BYTES_TOTAL,
    FOLD_GROWTH,
    FOLD_OPERATIONS,
    FOLD_OPERATIONS_TOTAL,
)
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ir.types import Tensor
from microfold.ops.control.control_flow import While
from microfold.ops.movement.copy import Copy
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

TINY = 1024  # size of a result that is always allowed, in bytes
GROWTH = 4  # maximum size of a larger result, relative to its operands


@dataclass
class _Budget:
    """Remaining budget of evaluation at compile time, from `microfold.ir.limits`.

    Attributes:
        growth: maximum number of elements that results may have in addition to their operands.
    """

    growth: int
    operations: int = FOLD_OPERATIONS_TOTAL
    bytes: int = FOLD_BYTES_TOTAL

    def refusal(self, operations: int, size: int, growth: int) -> str:
        """Return why an evaluation exceeds the budget. If it does not, deduct its cost and return ""."""
        if operations > FOLD_OPERATIONS or size > FOLD_BYTES:
            limits = f"{FOLD_OPERATIONS} operations and {FOLD_BYTES} bytes"
            return f"it needs {operations} operations on {size} bytes; the limits are {limits}"
        if operations > self.operations or size > self.bytes:
            return f"it needs {operations} operations on {size} bytes; other folds have used up the budget"
        if growth > self.growth:
            return f"it would add {growth} elements; the remaining limit is {self.growth}"
        self.growth -= growth
        self.operations -= operations
        self.bytes -= size
        return ""


@function_pass(opt_level=2)
def fold_constant(graph: Graph, context: PassContext) -> Graph:
    """Replace nodes over constants by their results."""

    budget = _Budget(FOLD_GROWTH + sum(array.size for array in graph.constants.values()))

    def fold(site: RewriteSite[None]) -> list[Value] | None:
        node = site.node
        if node.op.has_effect or isinstance(node.op, Copy):  # a copy exists for its storage
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
                node, f"its result would need {size} bytes of flash; it is computed from {given} bytes"
            )
            return None
        most = max((tensor.type.size for tensor in tensors.values()), default=0)
        growth = max(sum(value.type.size for value in node.outputs) - most, 0)
        refusal = budget.refusal(_operations(node, graph), given + size, growth)
        if refusal:
            context.declined(node, refusal)
            return None
        context.fired(node, f"all operands are constant; {size} bytes")
        results = zip(node.outputs, node.evaluate(tensors, functions(graph)), strict=True)
        return [site.builder.constant(result.data, value.type, value.name) for value, result in results]

    return forward_rewrite(graph, fold)


def _operations(node: Node, graph: Graph) -> int:
    """Count the elementary operations of one evaluation, subgraphs included."""
    bodies = [graph.subgraphs[name] for name in node.op.bodies]
    return node.operations() + sum(_operations(inner, body) for body in bodies for inner in body.nodes)


def _runs_loop(op: Op, graph: Graph) -> bool:
    """Return whether the operator is a loop, or runs one."""
    bodies = [graph.subgraphs[name] for name in op.bodies]
    return isinstance(op, While) or any(_runs_loop(node.op, body) for body in bodies for node in body.nodes)
