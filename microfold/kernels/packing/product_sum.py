"""What the integer product-sum kernels share: conditions, and channel records ready for the C struct."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microfold.ir.types import Array, DType
from microfold.kernels.call import Parameter
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import multiply_high, output_range, output_table
from microfold.kernels.requantize.multiply_high import Requantization
from microfold.ops import accumulate


def unsupported_int8_constants(layer: LayerContext, *, tables: bool = False) -> str | None:
    """What every int8 product-sum kernel needs: int8 operands, constant weights and bias, clips only.

    Args:
        tables: the kernel looks outputs up in a table, too, see `output_table`.
    """
    return unsupported_constants(layer, DType.INT8, DType.INT8, tables=tables)


def unsupported_constants(
    layer: LayerContext, activations: DType, weights: DType, *, tables: bool = False
) -> str | None:
    """The same for other element types."""
    x, w = layer.node.inputs[0], layer.node.inputs[1]
    assert x is not None and w is not None
    if (x.type.dtype, w.type.dtype) != (activations, weights):
        kinds = f"{x.type.dtype.value} and {w.type.dtype.value}"
        return f"it needs {activations.value} activations and {weights.value} weights; they are {kinds}"
    if layer.array(1) is None or (layer.present(2) and layer.array(2) is None):
        return "weights and bias must be constant"
    return output_range.unsupported_epilogue(layer.node, tables=tables)


def unsupported_bounds(layer: LayerContext, matrix: Array) -> str | None:
    """The reason if accumulators, or what they are while they are summed up, might leave int32.

    Args:
        matrix: the weights as [channels, K], any zero point taken off.
    """
    x, sums = layer.node.inputs[0], layer.sums()
    if sums is not None and int(sums.partial.max()) < 1 << 31:
        return None
    assert x is not None and x.type.quant is not None
    bias = multiply_high.fold_zero_point(matrix, layer.array(2), x.type.quant.zero_point)
    # Elements may be 0: no partial sum leaves the bounds of the whole one.
    low, high = multiply_high.accumulator_bounds(matrix, bias, *x.type.dtype.range)
    if low.min() < -(1 << 31) or high.max() >= 1 << 31:
        return f"accumulators might overflow: they reach [{low.min()}, {high.max()}]"
    return None


def bias_and_bounds(layer: LayerContext, matrix: Array) -> tuple[Array, tuple[Array, Array]]:
    """Per channel, int64: the bias with the input's zero point folded in; smallest and largest sum.

    The bounds are those that the input's proved range and the window's positions leave, if these are known.
    """
    x = layer.node.inputs[0]
    assert x is not None and x.type.quant is not None
    bias = multiply_high.fold_zero_point(matrix, layer.array(2), x.type.quant.zero_point)
    sums = layer.sums()
    if sums is not None:
        return bias, (sums.low, sums.high)
    return bias, multiply_high.accumulator_bounds(matrix, bias, *x.type.dtype.range)


def channel_multipliers(layer: LayerContext) -> tuple[Array, Array]:
    """The reference's mantissas and shifts of a quantised convolution, per output channel."""
    x, weights = (value.type.quant for value in layer.node.operands[:2])
    out = output_table.sum_type(layer.node)
    assert x is not None and weights is not None and out.quant is not None
    return accumulate.output_multipliers(x, weights, out.quant, out.shape[-1])


def output_records(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> tuple[Requantization, Mapping[str, Parameter]]:
    """Requantisation of sums of 32 bits, and the output's bounds as layer fields.

    Args:
        matrix: the weights as [channels, K], any zero point taken off.
        multipliers: the reference's mantissas and shifts per channel.
    """
    out = output_table.sum_type(layer.node)
    assert out.quant is not None
    bias, bounds = bias_and_bounds(layer, matrix)
    low, high = output_range.output_limits(layer)
    limits = {"output_minimum": low, "output_maximum": high}
    if unsupported_bounds(layer, matrix) is not None:
        return multiply_high.wrapped_requantization(bias, *multipliers, out.quant.zero_point), limits
    clip, _ = output_range.integer_bounds(layer.node)
    return multiply_high.plan_requantization(bias, bounds, *multipliers, out.quant.zero_point, clip), limits


def pad_channels(array: Array, multiple: int) -> Array:
    """Zero rows behind the channels (axis 0) up to a multiple."""
    missing = -array.shape[0] % multiple
    return np.pad(array, ((0, missing), *((0, 0),) * (array.ndim - 1)))


def pad_records(records: Array, multiple: int) -> Array:
    """Copies of the last record behind the channels up to a multiple: a zero one would shift by -1 bits."""
    return np.pad(records, ((0, -records.shape[0] % multiple), (0, 0)), mode="edge")


def interleave_channels(matrix: Array, group: int) -> Array:
    """[channels, K] to [channels / group, K, group]: the order in which `group` sums at a time read weights.

    Channels are padded with zeros to a multiple of `group`.
    """
    padded = pad_channels(matrix, group)
    channels, depth = padded.shape
    return np.ascontiguousarray(padded.reshape(channels // group, group, depth).swapaxes(1, 2))


def unroll_factor(depth: int) -> int:
    """How many products of a sum of `depth` one iteration of the inner loop takes without a remainder."""
    return next(factor for factor in (4, 2, 1) if depth % factor == 0)


def float_biases(layer: LayerContext, channels: int) -> Array:
    """float32 [channels]: the constant bias, or zeros."""
    bias = layer.array(2)
    return np.zeros(channels, np.float32) if bias is None else bias


def wide_records(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> tuple[Array, str] | None:
    """For sums of 64 bits: records (bias, reduced multiplier, 0, shift), and the accumulator's C type.

    The reference reduces the multiplier to 16 bits and rounds once, see
    `numerics.multiply_int64_by_quantized_multiplier`. None if a bias or a shift does not fit.

    Args:
        matrix: the weights as [channels, K].
    """
    bias = layer.array(2)
    biases = np.zeros(matrix.shape[0], np.int64) if bias is None else bias.astype(np.int64)
    mantissas, shifts = (m.astype(np.int64) for m in multipliers)
    reduced = np.where(mantissas < 0x7FFF0000, (mantissas + (1 << 15)) >> 16, 0x7FFF)
    if np.abs(biases).max() >= 1 << 31 or shifts.max() > 14 or shifts.min() < -47:
        return None
    low, high = multiply_high.accumulator_bounds(matrix, biases, *DType.INT16.range)
    sums = layer.sums()
    proved = sums is not None and int(sums.partial.max()) < 1 << 31
    narrow = proved or (low.min() >= -(1 << 31) and high.max() < 1 << 31)
    records = np.stack([biases, reduced, np.zeros_like(biases), 15 - shifts], axis=1)
    return records.astype(np.int32), "int32_t" if narrow else "int64_t"


def wide_record(bias: int, multiplier: tuple[int, int]) -> Array:
    """The record of `wide_records` for one multiplier, int32 [1, 4]."""
    mantissa, shift = multiplier
    reduced = (mantissa + (1 << 15)) >> 16 if mantissa < 0x7FFF0000 else 0x7FFF
    return np.array([[bias, reduced, 0, 15 - shift]], np.int32)


def plan_without_folding(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> Requantization:
    """Requantisation of an int8 output whose kernel subtracts the input's zero point itself.

    Args:
        matrix: the weights as [channels, K]; a sum may have any part of its products.
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
        bounds = multiply_high.accumulator_bounds(matrix, bias, low, high)
    limit, _ = output_range.integer_bounds(layer.node)
    return multiply_high.plan_requantization(bias, bounds, *multipliers, out.quant.zero_point, limit)
