"""Combines several fully connected layers of one input into one, if that is profitable.

    %a: int8[1,3] = fully_connected(%x, %v)          %c: int8[1,8] = fully_connected(%x, %vw)
    %b: int8[1,5] = fully_connected(%x, %w)    ->    %a: int8[1,3] = strided_slice(%c) {begin=(0, 0), ...}
                                                     %b: int8[1,5] = strided_slice(%c) {begin=(0, 3), ...}

Kernels compute units in blocks, and remaining units cost more each. Layers whose remainders together fill a
block become faster; others only pay for the slices. Measured on a Cortex-M4 for int8 and one row, in
instructions:

        inputs -> units   separate layers    combined    slices included
    256 -> 3+5                  4023        2642               206
    64 -> 1+1                    643         370               145
    64 -> 10+10                 1821        1973               225
    256 -> 16+16+16            13755       13984               313

On a Cortex-M55 the first pair is 18 % faster, and the last group 7 % slower; on a Cortex-M0+ 24 % faster and
9 % slower. The rule: a block of 8 units needs 8.5 instructions per input, a pair of units 3, and a layer 60
more per row. A slice needs 75, and 50 per row. Integers keep their bits: a scale per layer results in the
same multipliers as a scale per channel.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msgspec import Struct

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ops.fully_connected.fully_connected import FullyConnected
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


@function_pass(opt_level=4, name="combine_parallel_dense")
class CombineParallelDense(Struct, frozen=True):
    """Concatenation of the weights of fully connected layers of one input. Costs are instructions.

    Attributes:
        block: units that kernels compute together.
        per_block: cost of a block per input,
        per_pair: and of two units outside of blocks.
        layer: additional cost of a layer per row.
        slice: cost of a slice,
        slice_row: and of each of its rows.
        min_num_branches: minimum number of branches of a group.
        check: returns None or True if the nodes of a group may be combined, or False or a reason if not.

    Raises:
        InputError: `min_num_branches` is less than 2, or `block` is not positive.
    """

    block: int = 8
    per_block: float = 8.5
    per_pair: float = 3.0
    layer: float = 60.0
    slice: float = 75.0
    slice_row: float = 50.0
    min_num_branches: int = MIN_NUM_BRANCHES
    check: Check | None = None

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        if self.block < 1:
            raise InputError(f"block must be positive; got {self.block}")
        return combine_parallel(
            graph,
            context,
            FullyConnected,
            _key,
            _weights,
            self._why_not,
            min_num_branches=self.min_num_branches,
            check=self.check,
        )

    def _why_not(self, group: Sequence[Branch]) -> str | None:
        rows, inputs = group[0].node.operands[0].type.shape
        units = [branch.output.type.shape[1] for branch in group]
        products = sum(map(self._products, units)) - self._products(sum(units))
        saved = rows * (inputs * products + (len(group) - 1) * self.layer)
        # A slice of a single row is one contiguous copy.
        cost = len(group) * (self.slice + (rows * self.slice_row if rows > 1 else 0))
        if saved > cost:
            return None
        return f"the slices would need about {cost:.0f} instructions to save {saved:.0f}"

    def _products(self, units: int) -> float:
        """Return the number of instructions per input."""
        blocks, rest = divmod(units, self.block)
        return blocks * self.per_block + -(-rest // 2) * self.per_pair


def _key(node: Node, graph: Graph) -> tuple[Hashable, ...] | str:
    return (node.operands[1].type.dtype,) if operands_are_constant(node, graph) else NOT_CONSTANT


def _weights(group: Sequence[Branch], graph: Graph) -> BranchWeights | str:
    return concatenated_weights(group, graph, axis=0)
