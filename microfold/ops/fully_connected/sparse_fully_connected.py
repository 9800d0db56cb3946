"""Fully connected layer that stores only blocks of weights that contain a nonzero weight."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, TensorType
from microfold.ops.fully_connected.fully_connected import FullyConnected

WIDTH = 4  # neighbouring inputs in a block


@register
class SparseFullyConnected(FullyConnected, frozen=True):
    """Operator equal to `fully_connected`, whose weights are stored in blocks of 1x4.

    The operand is the whole matrix [M, K] including zeros, so that passes can compute with it. Kernels store
    the blocks that `cover` finds.
    """

    name: ClassVar[str] = "sparse_fully_connected"

    def infer(self, x: TensorType, weights: TensorType, bias: TensorType | None = None) -> TensorType:
        zero_points = weights.quant.zero_points if weights.quant is not None else ()
        require(
            not any(zero_points),
            f"sparse_fully_connected: the zero point of weights must be 0; it is {zero_points}",
        )
        return super().infer(x, weights, bias)


class Cover(NamedTuple):
    """Blocks that contain all nonzero weights, unit by unit, from left to right.

    Attributes:
        units, columns: row and first column of each block.
        weights: [blocks, width].
    """

    units: Array
    columns: Array
    weights: Array


def cover(weights: Array) -> Cover:
    """Return the fewest blocks of 1x4 (or of all columns, if there are fewer) that cover a matrix [M, K].

    Each block starts at the first nonzero weight that no block contains yet. A block that would exceed the
    matrix starts earlier; weights that it shares with the block before are zero in it.
    """
    units, inputs = weights.shape
    width = min(WIDTH, inputs)
    columns = np.where(weights != 0, np.arange(inputs), inputs)
    # For each column, the next nonzero column, including itself.
    following = np.minimum.accumulate(columns[:, ::-1], axis=1)[:, ::-1]
    following = np.concatenate([following, np.full((units, 1), inputs)], axis=1)
    rows, begin = np.arange(units), np.zeros(units, np.int64)
    found: list[Array] = []
    while rows.size:
        first = following[rows, begin]
        rows, begin, first = (array[first < inputs] for array in (rows, begin, first))
        start = np.minimum(first, inputs - width)
        found.append(np.stack([rows, start, begin], axis=1))
        begin = start + width
    rows, start, begin = np.concatenate(found).T
    order = np.lexsort((start, rows))
    rows, start, begin = rows[order], start[order], begin[order]
    reach = start[:, None] + np.arange(width)
    return Cover(rows, start, np.where(reach >= begin[:, None], weights[rows[:, None], reach], 0))
