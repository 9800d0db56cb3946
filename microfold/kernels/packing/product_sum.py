"""Support checks and channel records that the product-sum kernels share.

Rows of a record array have the order of the members of the C struct.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microfold.ir.types import Array, DType
from microfold.kernels.call import Parameter
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import mul_hi, output_range, output_table
from microfold.kernels.requantize.mul_hi import Requantization
from microfold.ops import accumulate


def unsupported_int8_constants(layer: LayerContext, *, tables: bool = False) -> str | None:
    """Return the reason why an int8 product-sum kernel does not support the layer, or None.

    The kernel needs int8 operands, constant weights and bias, and an epilogue that only clips.

    Args:
        tables: whether the kernel also supports a lookup table for outputs, see `output_table`.
    """
    return unsupported_constants(layer, DType.INT8, DType.INT8, tables=tables)


def unsupported_constants(
    layer: LayerContext, activations: DType, weights: DType, *, tables: bool = False
) -> str | None:
    """Return the reason why a product-sum kernel for these types does not support the layer, or None."""
    x, w = layer.node.inputs[0], layer.node.inputs[1]
    assert x is not None and w is not None
    if (x.type.dtype, w.type.dtype) != (activations, weights):
        kinds = f"{x.type.dtype.value} and {w.type.dtype.value}"
        return f"it requires {activations.value} activations and {weights.value} weights; they are {kinds}"
    if layer.array(1) is None or (layer.present(2) and layer.array(2) is None):
        return "weights and bias must be constant"
    return output_range.unsupported_epilogue(layer.node, tables=tables)


def unsupported_bounds(layer: LayerContext, matrix: Array) -> str | None:
    """Return the reason if an accumulator or one of its partial sums might exceed int32, else None.

    Args:
        matrix: weights [channels, K], with any zero point subtracted.
    """
    x, sums = layer.node.inputs[0], layer.sums()
    if sums is not None and int(sums.partial.max()) < 1 << 31:
        return None
    assert x is not None and x.type.quant is not None
    bias = mul_hi.fold_zero_point(matrix, layer.array(2), x.type.quant.zero_point)
    # The bounds of the complete sum allow any element to be 0, so that they also hold for partial sums.
    low, high = mul_hi.accumulator_bounds(matrix, bias, *x.type.dtype.range)
    if low.min() < -(1 << 31) or high.max() >= 1 << 31:
        return f"accumulators might overflow: they reach [{low.min()}, {high.max()}]"
    return None


def bias_and_bounds(layer: LayerContext, matrix: Array) -> tuple[Array, tuple[Array, Array]]:
    """Return, per channel, the bias with the input's zero point folded in, and the smallest and largest sum.

    All are int64. If they are known, the bounds use the proved range of the input and the window's positions.
    """
    x = layer.node.inputs[0]
    assert x is not None and x.type.quant is not None
    bias = mul_hi.fold_zero_point(matrix, layer.array(2), x.type.quant.zero_point)
    sums = layer.sums()
    if sums is not None:
        return bias, (sums.low, sums.high)
    return bias, mul_hi.accumulator_bounds(matrix, bias, *x.type.dtype.range)


def channel_multipliers(layer: LayerContext) -> tuple[Array, Array]:
    """Return the reference's multiplier mantissas and shifts of a quantised layer, per output channel."""
    x, weights = (value.type.quant for value in layer.node.operands[:2])
    out = output_table.sum_type(layer.node)
    assert x is not None and weights is not None and out.quant is not None
    return accumulate.output_multipliers(x, weights, out.quant, out.shape[-1])


def output_records(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> tuple[Requantization, Mapping[str, Parameter]]:
    """Return the requantisation of 32-bit sums, and the limits of the output as layer fields.

    Args:
        matrix: weights [channels, K], with any zero point subtracted.
        multipliers: the reference's mantissas and shifts per channel.
    """
    out = output_table.sum_type(layer.node)
    assert out.quant is not None
    bias, bounds = bias_and_bounds(layer, matrix)
    low, high = output_range.output_limits(layer)
    limits = {"output_minimum": low, "output_maximum": high}
    if unsupported_bounds(layer, matrix) is not None:
        return mul_hi.wrapped_requantization(bias, *multipliers, out.quant.zero_point), limits
    clip, _ = output_range.integer_bounds(layer.node)
    return mul_hi.plan_requantization(bias, bounds, *multipliers, out.quant.zero_point, clip), limits


def pad_channels(array: Array, multiple: int) -> Array:
    """Pad channels (axis 0) with zero rows to a multiple."""
    missing = -array.shape[0] % multiple
    return np.pad(array, ((0, missing), *((0, 0),) * (array.ndim - 1)))


def pad_records(records: Array, multiple: int) -> Array:
    """Pad records with copies of the last one to a multiple of channels.

    A record of zeros would shift by -1 bits.
    """
    return np.pad(records, ((0, -records.shape[0] % multiple), (0, 0)), mode="edge")


def interleave_channels(matrix: Array, group: int) -> Array:
    """Reorder [channels, K] to [channels / group, K, group], in which kernels with `group` sums read weights.

    Channels are padded with zeros to a multiple of `group`.
    """
    padded = pad_channels(matrix, group)
    channels, depth = padded.shape
    return np.ascontiguousarray(padded.reshape(channels // group, group, depth).swapaxes(1, 2))


def unroll_factor(depth: int) -> int:
    """Return the products per iteration of the inner loop, so that a sum of `depth` has no remainder."""
    return next(factor for factor in (4, 2, 1) if depth % factor == 0)


def float_biases(layer: LayerContext, channels: int) -> Array:
    """Return the constant bias, or zeros, as float32 [channels]."""
    bias = layer.array(2)
    return np.zeros(channels, np.float32) if bias is None else bias


def wide_records(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> tuple[Array, str] | None:
    """Return records (bias, reduced multiplier, 0, shift) for 64-bit sums, and the accumulator's C type.

    The reference reduces the multiplier to 16 bits and rounds once, see
    `numerics.multiply_int64_by_quantized_multiplier`. Return None if a bias or a shift does not fit.

    Args:
        matrix: weights [channels, K].
        multipliers: the reference's mantissas and shifts per channel.
    """
    bias = layer.array(2)
    biases = np.zeros(matrix.shape[0], np.int64) if bias is None else bias.astype(np.int64)
    mantissas, shifts = (m.astype(np.int64) for m in multipliers)
    reduced = np.where(mantissas < 0x7FFF0000, (mantissas + (1 << 15)) >> 16, 0x7FFF)
    if np.abs(biases).max() >= 1 << 31 or shifts.max() > 14 or shifts.min() < -47:
        return None
    low, high = mul_hi.accumulator_bounds(matrix, biases, *DType.INT16.range)
    sums = layer.sums()
    proved = sums is not None and int(sums.partial.max()) < 1 << 31
    narrow = proved or (low.min() >= -(1 << 31) and high.max() < 1 << 31)
    records = np.stack([biases, reduced, np.zeros_like(biases), 15 - shifts], axis=1)
    return records.astype(np.int32), "int32_t" if narrow else "int64_t"


def wide_record(bias: int, multiplier: tuple[int, int]) -> Array:
    """Return the record of `wide_records` for one multiplier, int32 [1, 4]."""
    mantissa, shift = multiplier
    reduced = (mantissa + (1 << 15)) >> 16 if mantissa < 0x7FFF0000 else 0x7FFF
    return np.array([[bias, reduced, 0, 15 - shift]], np.int32)


def plan_without_folding(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> Requantization:
    """Return the requantisation of an int8 output whose kernel subtracts the input's zero point itself.

    Args:
        matrix: weights [channels, K]. A sum may have any subset of its products.
        multipliers: the reference's mantissas and shifts per channel.
    """
    x, out = layer.node.inputs[0], layer.node.outputs[0].type
    assert x is not None and x.type.quant is not None and out.quant is not None
    bias = np.zeros(matrix.shape[0], np.int64)
    given = layer.array(2)
    if given is not None:
        bias = bias + given.astype(np.int64)
    sums = layer.sums()
    if sums is not None:
        bounds = sums.low, sums.high
    else:
        low, high = (bound - x.type.quant.zero_point for bound in x.type.dtype.range)
        bounds = mul_hi.accumulator_bounds(matrix, bias, low, high)
    limit, _ = output_range.integer_bounds(layer.node)
    return mul_hi.plan_requantization(bias, bounds, *multipliers, out.quant.zero_point, limit)
