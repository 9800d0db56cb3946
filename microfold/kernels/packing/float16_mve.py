"""Packing and cost terms that the float16 kernels for Helium (MVE) share."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.cost.terms import Terms
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum

# Number of float16 elements in a vector.
LANES = 8
# Number of products that are summed in float16 before their sum is added to a float32 sum.
RUN = 64


def half_biases(layer: LayerContext, channels: int, multiple: int = 1) -> Array:
    """Return the constant bias, or zeros, as float16, padded with zeros to a multiple of channels."""
    bias = layer.array(2)
    padded = np.zeros(channels, np.float16) if bias is None else bias
    return product_sum.pad_channels(padded, multiple)


def half_blocks(matrix: Array, block: int) -> Array:
    """Reorder float16 [channels, K] to [channels / block, K, block], padded with zeros after the channels."""
    return product_sum.interleave_channels(matrix, block)


def run_terms(depth: int, rows: int, vectors: int) -> Terms:
    """Count the code parts for the sums of `depth` products of some rows with some vectors of weights.

    A step is a load, or a product with its addition. A sum of more than `RUN` products is widened after each
    run.
    """
    sums = rows * vectors
    steps = Terms(step=depth * (rows + vectors + sums + 1))
    if depth <= RUN:
        return steps + Terms(short_run=1, short_sum=sums)
    runs = -(-depth // RUN)
    return steps + Terms(long_run=1, long_sum=sums, run=runs, run_sum=runs * sums)
