"""Computes several products of one matrix with constant ones at once, where that pays.

    %a: float32[4,3] = batch_matmul(%x, %v) {...}          %c: float32[4,8] = batch_matmul(%x, %vw) {...}
    %b: float32[4,5] = batch_matmul(%x, %w) {...}    ->    %a: float32[4,3] = strided_slice(%c) {...}
                                                           %b: float32[4,5] = strided_slice(%c) {...}

The columns of the constant matrices stand side by side in one. A kernel that computes element after
element, as the portable one does, saves nothing but a call: then the slices never pay, and nothing is
combined. What a kernel saves that keeps a row of the first matrix for several columns is the option
`element`. Bits stay.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ops.batch_matmul import BatchMatmul
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.support.frozen import frozen
from microfold.transform.matmul.parallel.branches import (
    MIN_NUM_BRANCHES,
    NOT_CONSTANT,
    Branch,
    Check,
    Weights,
    combine_parallel,
    concatenated_weights,
    operands_are_constant,
)


@function_pass(opt_level=4, name="combine_parallel_matmul")
@frozen
class CombineParallelMatmul:
    """Concatenate the columns of constant matrices. Costs are instructions.

    Attributes:
        call: what a product takes besides its rows,
        element: and for each element of the first matrix besides multiplications.
        slice: what a slice takes,
        slice_row: and for each row of it.
        min_num_branches: groups of fewer branches stay as they are.
        check: None or True of the nodes of a group: they may be combined; False or a reason: they may not.

    Raises:
        InputError: `min_num_branches` is less than 2.
    """

    call: float = 60.0
    element: float = 0.0
    slice: float = 75.0
    slice_row: float = 50.0
    min_num_branches: int = MIN_NUM_BRANCHES
    check: Check | None = None

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        return combine_parallel(
            graph,
            context,
            BatchMatmul,
            _key,
            _weights,
            self._why_not,
            min_num_branches=self.min_num_branches,
            check=self.check,
        )

    def _why_not(self, group: Sequence[Branch]) -> str | None:
        x, out = group[0].node.operands[0].type, group[0].output.type
        saved = (len(group) - 1) * (self.call + self.element * x.size)
        cost = len(group) * (self.slice + self.slice_row * out.size / out.shape[-1])
        if saved > cost:
            return None
        return f"the slices would take about {cost:.0f} instructions to save {saved:.0f}"


def _columns(node: Node) -> int:
    """The axis of the second operand that runs along the columns of the result."""
    assert isinstance(node.op, BatchMatmul)
    return node.operands[1].type.rank - (2 if node.op.transpose_second else 1)


def _key(node: Node, graph: Graph) -> tuple[Hashable, ...] | str:
    if not operands_are_constant(node, graph):
        return NOT_CONSTANT
    type, axis = node.operands[1].type, _columns(node)
    # One scale for all of a matrix: other scales do not go together.
    return type.dtype, type.quant, type.shape[:axis], type.shape[axis + 1 :]


def _weights(group: Sequence[Branch], graph: Graph) -> Weights | str:
    return concatenated_weights(group, graph, axis=_columns(group[0].node))
