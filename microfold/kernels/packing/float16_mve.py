"""What the float16 kernels for Helium share: eight lanes, and sums of runs of products."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
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


def run_cost(depth: int, rows: int, vectors: int) -> float:
    """Estimated instructions for the sums of `depth` products of some rows with some vectors of weights."""
    sums = rows * vectors
    products = depth * (rows + vectors + sums + 1.0)
    if depth <= RUN:
        return products + 3 * sums + 25
    return products + -(-depth // RUN) * (9 * sums + 8) + 20 * sums + 40
