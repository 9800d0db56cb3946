"""Accumulator types and requantisation of conv2d, depthwise_conv2d, transpose_conv2d and fully_connected."""

from __future__ import annotations

import functools

import numpy as np

from microfold.arithmetic import numerics
from microfold.ir.op import require
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType

MAX_INT16_SHIFT = 7  # largest shift of the reference's 64-bit multiplication

# Supported types of activations and weights, with the allowed types of the bias.
BIAS_DTYPES: dict[tuple[DType, DType], tuple[DType, ...]] = {
    (DType.FLOAT32, DType.FLOAT32): (DType.FLOAT32,),
    (DType.FLOAT16, DType.FLOAT16): (DType.FLOAT16,),
    (DType.INT8, DType.INT8): (DType.INT32,),
    # Legacy uint8 weights minus their zero point, which need nine bits.
    (DType.INT8, DType.INT16): (DType.INT32,),
    (DType.INT16, DType.INT8): (DType.INT64, DType.INT32),
}


def check_accumulation(
    op: str, x: TensorType, weights: TensorType, bias: TensorType | None, channels: int, out: ElementType
) -> None:
    """Check the type rule that all product-sum operators share.

    Raises:
        TypeRuleError: the combination of element types is not supported, or a quantisation is missing.
    """
    key = (x.dtype, weights.dtype)
    require(
        key in BIAS_DTYPES,
        f"{op}: activations {x.dtype.value} with weights {weights.dtype.value} are not supported",
    )
    require(out.dtype is x.dtype, f"{op}: the output must be {x.dtype.value}; it is {out.dtype.value}")
    if bias is not None:
        allowed = " or ".join(dtype.value for dtype in BIAS_DTYPES[key])
        require(
            bias.dtype in BIAS_DTYPES[key] and bias.shape == (channels,),
            f"{op}: the bias must be {allowed} [{channels}]; it is {bias}",
        )
    if x.dtype.is_float:
        return
    for what, quant in (("input", x.quant), ("output", out.quant)):
        require(quant is not None and quant.axis is None, f"{op}: the {what} must have one scale per tensor")
    require(weights.quant is not None, f"{op}: the weights must be quantised")
    assert x.quant is not None
    assert weights.quant is not None
    assert out.quant is not None
    largest = numerics.effective_multiplier([x.quant.scale, max(weights.quant.scales)], out.quant.scale)
    if has_wide_sums(x, bias):
        check_int16_multiplier(op, largest)


def has_wide_sums(x: TensorType, bias: TensorType | None) -> bool:
    """Return whether accumulators have 64 bits; multipliers are then reduced to 16 bits.

    This depends on the bias, as in the reference. With int16 activations, an int32 bias implies accumulators
    of 32 bits, which wrap around, and a full multiplier. Accumulators of int8 activations always have 32
    bits.
    """
    return x.dtype is DType.INT16 and (bias is None or bias.dtype is not DType.INT32)


def check_int16_multiplier(op: str, largest: numerics.Multiplier) -> None:
    """Check the largest multiplier of 64-bit accumulators against the reference's 64-bit multiplication.

    Raises:
        TypeRuleError: the multiplier is larger.
    """
    require(
        largest.shift <= MAX_INT16_SHIFT,
        f"{op}: the product of the operands' scales must be below {1 << MAX_INT16_SHIFT} output scales",
    )


def check_symmetric(op: str, filters: TensorType, axis: int) -> None:
    """Check the type rule of convolution filters: zero points 0, and scales per tensor or along one axis.

    Raises:
        TypeRuleError: the filters violate the rule.
    """
    if filters.quant is not None:
        require(not any(filters.quant.zero_points), f"{op}: filter zero points must be 0")
        require(filters.quant.axis in (None, axis), f"{op}: filter scales must run along axis {axis}")


def output_multipliers(x: Quant, weights: Quant, out: Quant, channels: int) -> tuple[Array, Array]:
    """Return mantissas and shifts, int32 [channels], of the scale ``in * weights[c] / out`` in double."""
    scales = weights.scales if weights.axis is not None else weights.scales * channels
    return _multipliers(x.scale, scales, out.scale)


# Kernels and streamed rows of a layer ask for the same multipliers repeatedly.
@functools.lru_cache(maxsize=256)
def _multipliers(x: float, scales: tuple[float, ...], out: float) -> tuple[Array, Array]:
    pairs = [numerics.effective_multiplier([x, s], out) for s in scales]
    found = np.array(pairs, np.int32).reshape(len(scales), 2).T.copy()
    found.flags.writeable = False
    return found[0], found[1]


def requantize(acc: Array, mantissas: Array, shifts: Array, out: ElementType, *, wide: bool) -> Array:
    """Requantise accumulators [..., channels] to the output's integers.

    Args:
        wide: whether accumulators have 64 bits, see `has_wide_sums`; otherwise they wrap around at 32 bits.
    """
    assert out.quant is not None
    if wide:
        scaled = numerics.multiply_int64_by_quantized_multiplier(acc, mantissas, shifts)
    else:
        wrapped = np.asarray(acc, np.int64).astype(np.int32)
        scaled = numerics.multiply_by_quantized_multiplier(wrapped, mantissas, shifts)
    return numerics.clamp(scaled.astype(np.int64) + out.quant.zero_point, *out.dtype.range, out.dtype)


def finish(acc: Array, x: Tensor, weights: Tensor, bias: Tensor | None, out: ElementType) -> Array:
    """Add the bias to sums [..., channels] of `widened` operands, and requantise them to the output."""
    if x.type.dtype.is_float:
        with np.errstate(over="ignore"):
            return (acc + (bias.data if bias is not None else np.float32(0))).astype(out.dtype.numpy)
    acc = exact_int(acc) + (bias.data if bias is not None else 0)
    assert x.type.quant is not None
    assert weights.type.quant is not None
    assert out.quant is not None
    multipliers = output_multipliers(x.type.quant, weights.type.quant, out.quant, acc.shape[-1])
    wide = has_wide_sums(x.type, bias.type if bias is not None else None)
    return requantize(acc, *multipliers, out, wide=wide)


def widened(x: Tensor) -> Array:
    """Return operands of exact products: floats as float32, integers `centred`."""
    return x.data.astype(np.float32, copy=False) if x.type.dtype.is_float else centred(x)


def centred(x: Tensor) -> Array:
    """Return integers minus zero point as float64, in which products and sums below 2^53 are exact."""
    zero_point = x.type.quant.zero_points[0] if x.type.quant is not None else 0
    return x.data.astype(np.float64) - zero_point


def exact_int(acc: Array) -> Array:
    """Return a float64 array of exact integers as int64."""
    return np.rint(acc).astype(np.int64)
