"""Type rules of hybrid product sums: activations of `dynamic_quantize`, integer weights, float32 results."""

from __future__ import annotations

import numpy as np

from microfold.ir.op import require
from microfold.ir.types import Array, DType, TensorType

# Maximum number of products of [-255, 255] and int8 whose sum fits 32 bits.
MAX_DEPTH = (2**31 - 1) // (255 * 128)


def check_hybrid(
    op: str,
    x: TensorType,
    weights: TensorType,
    bias: TensorType,
    steps: TensorType,
    *,
    axis: int,
    depth: int,
) -> None:
    """Check the type rule of hybrid operators with weights quantised per tensor or per channel.

    Args:
        axis: axis of the weights' output channels, along which their scales may vary.
        depth: number of products in a sum.

    Raises:
        TypeRuleError: the operands violate the rule.
    """
    check_operands(op, x, weights, bias, steps, axis=axis, depth=depth)
    require(weights.quant is not None, f"{op}: the weights must be quantised")
    assert weights.quant is not None
    require(
        weights.quant.axis in (None, axis) and not any(weights.quant.zero_points),
        f"{op}: the weights must have zero point 0, and one scale or scales along axis {axis}",
    )


def check_operands(
    op: str,
    x: TensorType,
    weights: TensorType,
    bias: TensorType,
    steps: TensorType,
    *,
    axis: int,
    depth: int,
) -> None:
    """Check the type rule that all hybrid operators share; see `check_hybrid`."""
    require(
        (x.dtype, weights.dtype) == (DType.INT16, DType.INT8) and x.quant is None,
        f"{op}: needs int16 activations without a scale and int8 weights; they are {x} and {weights}",
    )
    channels = weights.shape[axis]
    require(
        bias.dtype is DType.FLOAT32 and bias.shape == (channels,),
        f"{op}: the bias must be float32[{channels}]; it is {bias}",
    )
    require(
        steps.dtype is DType.FLOAT32 and steps.shape == x.shape[:1],
        f"{op}: there must be {x.shape[0]} float32 steps, one for each index of the first axis; they are "
        f"{steps}",
    )
    require(depth <= MAX_DEPTH, f"{op}: a sum can have at most {MAX_DEPTH} products; it has {depth}")


def weight_scales(weights: TensorType, axis: int) -> Array:
    """Return the scale of each output channel's weights, float32 [channels]."""
    assert weights.quant is not None
    return np.broadcast_to(np.array(weights.quant.scales, np.float32), weights.shape[axis])


def has_common_scale(weights: TensorType) -> bool:
    """Return whether the weights of all channels have the same scale, given once or repeated."""
    assert weights.quant is not None
    return len(set(weights.quant.scales)) == 1


def per_row(steps: Array, rank: int) -> Array:
    """Return steps that broadcast along the first axis of a result with `rank` axes."""
    return steps.reshape(-1, *(1,) * (rank - 1))
