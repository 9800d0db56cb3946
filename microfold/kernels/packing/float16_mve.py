"""What the float16 kernels for Helium share: eight lanes, and sums of runs of products."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.cost.terms import Terms
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum

# Elements of float16 in a vector.
LANES = 8
# Products that are summed up in float16 before the sum is added to others in float32.
RUN = 64


def half_biases(layer: LayerContext, channels: int, multiple: int = 1) -> Array:
    """float16 [channels]: the constant bias, or zeros, with zeros behind it up to a multiple."""
    bias = layer.array(2)
    padded = np.zeros(channels, np.float16) if bias is None else bias
    return product_sum.pad_channels(padded, multiple)


def half_blocks(matrix: Array, block: int) -> Array:
    """float16 [channels, K] as [channels / block, K, block], with zeros behind the channels."""
    return product_sum.interleave_channels(matrix, block)


def run_terms(depth: int, rows: int, vectors: int) -> Terms:
    """The sums of `depth` products of some rows with some vectors of weights.

    A step is a load, or a product and its sum; sums of more than `RUN` products are widened now and then.
    """
    sums = rows * vectors
    steps = Terms(step=depth * (rows + vectors + sums + 1))
    if depth <= RUN:
        return steps + Terms(short_run=1, short_sum=sums)
    runs = -(-depth // RUN)
    return steps + Terms(long_run=1, long_sum=sums, run=runs, run_sum=runs * sums)
