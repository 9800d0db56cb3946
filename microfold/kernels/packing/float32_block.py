"""Weight layout, clamping and cost terms that the float32 kernels for FPU and Helium (MVE) share."""

from __future__ import annotations

import math
from collections.abc import Mapping

from microfold.ir.types import Array
from microfold.kernels.call import Constant, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import float16_weights, product_sum
from microfold.kernels.requantize import output_range

# Number of channels that are computed together.
CHANNELS = 4


def block_weights(matrix: Array, half: bool) -> Constant:
    """Return weights [channels, K] in the order in which blocks of 4 channels read them.

    Args:
        half: whether to store them as float16.
    """
    packed = float16_weights.pack_pairs(matrix) if half else product_sum.interleave_channels(matrix, CHANNELS)
    return Constant("weights", packed)


def float_clamping(layer: LayerContext) -> tuple[str, Mapping[str, Parameter]]:
    """Return the kind of clamping of the outputs, and its layer fields.

    Returns:
        ``none``, ``relu`` (minimum 0), ``limited`` (minimum 0 and a maximum), or ``general``; and the fields.
    """
    low, high = output_range.float_bounds(layer.node)
    if (low, high) == (-math.inf, math.inf):
        return "none", {}
    if low == 0 and high == math.inf:
        return "relu", {}
    if low == 0 and high > 0:
        return "limited", {"output_maximum": high}
    return "general", {"output_minimum": low, "output_maximum": high}


def finish_terms(clamp_kind: str) -> Terms:
    """Count the code parts that clamp and store the sums of 4 channels."""
    return Terms({f"stored_{clamp_kind}": 1})
