"""Combines several products of one matrix with constant matrices into one, if that is profitable.

    %a: float32[4,3] = batch_matmul(%x, %v) {...}          %c: float32[4,8] = batch_matmul(%x, %vw) {...}
    %b: float32[4,5] = batch_matmul(%x, %w) {...}    ->    %a: float32[4,3] = strided_slice(%c) {...}
                                                           %b: float32[4,5] = strided_slice(%c) {...}

The combined constant has the columns of all constant matrices. A kernel that computes each element
separately, as the portable kernel does, saves only a call. Then the slices are never profitable, and the pass
does nothing. The option `element` describes the saving of a kernel that keeps a row of the first matrix for
several columns. All bits stay the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ops.batch_matmul import BatchMatmul
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.matmul.parallel.branches import (
    MIN_NUM_BRANCHES,
    NOT_CONSTANT,
    Branch,
    BranchWeights,
    Check,
    combine_parallel,
    concatenated_weights,
    operands_are_constant,
)


@function_pass(opt_level=4, name="combine_parallel_matmul")
class CombineParallelMatmul(Struct, frozen=True):
    """Concatenation of the columns of constant matrices. Costs are instructions.

    Attributes:
        call: cost of a product in addition to its rows,
        element: and of each element of the first matrix in addition to multiplications.
        slice: cost of a slice,
        slice_row: and of each of its rows.
        min_num_branches: minimum number of branches of a group.
        check: returns None or True if the nodes of a group may be combined, or False or a reason if not.

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
        return f"the slices would need about {cost:.0f} instructions to save {saved:.0f}"


def _columns(node: Node) -> int:
    """Return the axis of the second operand that becomes the columns of the result."""
    assert isinstance(node.op, BatchMatmul)
    return node.operands[1].type.rank - (2 if node.op.transpose_second else 1)


def _key(node: Node, graph: Graph) -> tuple[Hashable, ...] | str:
    if not operands_are_constant(node, graph):
        return NOT_CONSTANT
    type, axis = node.operands[1].type, _columns(node)
    # A matrix has one scale for all elements, therefore the scales must be equal.
    return type.dtype, type.quant, type.shape[:axis], type.shape[axis + 1 :]


def _weights(group: Sequence[Branch], graph: Graph) -> BranchWeights | str:
    return concatenated_weights(group, graph, axis=_columns(group[0].node))
