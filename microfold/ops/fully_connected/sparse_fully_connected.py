"""Fully connected layer that stores only weights around those that are not zero."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, TensorType
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.support.frozen import frozen

WIDTH = 4  # neighbouring inputs of a block


@register
@frozen
class SparseFullyConnected(FullyConnected):
    """The same numbers as `fully_connected`, told to be stored by blocks of 1x4.

    The weights are the whole matrix [M, K], zeros and all, for passes to compute with; kernels store what
    `cover` finds in it.
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
    """Blocks that hold all weights that are not zero, unit after unit, from left to right.

    Attributes:
        units, columns: the row of each block, and where it begins.
        weights: [blocks, width].
    """

    units: Array
    columns: Array
    weights: Array


def cover(weights: Array) -> Cover:
    """The fewest blocks of 1x4 (of all columns, if there are fewer) that cover a matrix [M, K].

    Each block begins at the first weight that no block holds yet. One that would reach beyond the matrix
    begins earlier; what it shares with the one before is zero in it.
    """
    units, inputs = weights.shape
    width = min(WIDTH, inputs)
    columns = np.where(weights != 0, np.arange(inputs), inputs)
    # The next column from each one on that is not zero.
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
