"""Weights of product sums that absorb the affine functions before or after them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from microfold.ir.node import Node, Value
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType
from microfold.ops.accumulate import BIAS_DTYPES, has_wide_sums
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.image import refuses_layout
from microfold.transform.scales.propagation.product_sums import uneven_border
from microfold.transform.scales.quantized.affine import QUANTIZED, Affine

# Number of bits of the bias in a channel without weights, whose scale can be chosen freely.
_BIAS_BITS = 20
# Maximum error of outputs if weights are rounded again: root mean square, in steps of the output.
LARGEST_ERROR = 2.0


class ProductWeights(Struct, frozen=True, eq=False):
    """Constant weights and bias of a product sum.

    Attributes:
        array: weights as stored, int64.
        scales: scale of each channel, float64 [channels].
        zero_point: zero point of all weights.
        bias: int64 [channels].
        axis: axis of the channels.
        filters: value of the weights in the graph.
        bias_dtype: type of the bias; None if the bias is absent.
    """

    array: Array
    scales: Array
    zero_point: int
    bias: Array
    axis: int
    filters: Value
    bias_dtype: DType | None

    @property
    def centred(self) -> Array:
        return self.array - self.zero_point

    def along(self, vector: Array) -> Array:
        """Reshape a vector over the channels to broadcast against the weights."""
        shape = [1] * self.array.ndim
        shape[self.axis] = -1
        return vector.reshape(shape)

    def is_empty(self) -> Array:
        """Return which channels have only zero weights, bool [channels]."""
        rest = tuple(axis for axis in range(self.array.ndim) if axis != self.axis)
        return np.all(self.centred == 0, axis=rest)


class ChangedWeights(Struct, frozen=True, eq=False):
    """New weights of a product sum.

    Attributes:
        bias: None if the product sum had none and needs none.
        error: root mean square error of outputs from rounding the weights again, in steps of the output; 0 if
            only signs and scales have changed.
        factor, offset: int64 [channels]; ``factor * sum + offset`` is the new sum if the error is 0.
    """

    weights: Array
    weights_type: TensorType
    bias: Array | None
    bias_type: TensorType
    error: float
    factor: Array
    offset: Array


def read_weights(node: Node, constants: Mapping[Value, Array]) -> ProductWeights | str:
    """Return the weights of a quantised product sum, or why they cannot be changed."""
    layout = refuses_layout(node.op)
    if layout is not None:
        return layout
    x, filters, *rest = node.inputs
    bias = rest[0] if rest else None
    weights, biases = (constants.get(v) if v is not None else None for v in (filters, bias))
    assert x is not None
    if x.type.dtype not in QUANTIZED or filters is None or weights is None or filters.type.quant is None:
        return "its weights are not constant integers"
    if bias is not None and biases is None:
        return "its bias is not constant"
    axis = 3 if isinstance(node.op, DepthwiseConv2D) else 0
    channels, quant = weights.shape[axis], filters.type.quant
    scales = np.broadcast_to(np.array(quant.scales, np.float64), (channels,))
    given = np.zeros(channels, np.int64) if biases is None else biases.astype(np.int64)
    dtype = bias.type.dtype if bias is not None else None
    return ProductWeights(weights.astype(np.int64), scales, quant.zero_points[0], given, axis, filters, dtype)


def scale_outputs(
    node: Node, weights: ProductWeights, affine: Affine, out: ElementType
) -> ChangedWeights | str:
    """Return the weights that make a product sum return ``affine`` of its result, or the refusal.

    Args:
        out: element type of the new output.
    """
    x = _quant(node.inputs[0])
    scales = _float32(weights.scales * np.abs(affine.scale))
    bias = affine.scale * (weights.bias * x.scale * weights.scales) + affine.shift
    sign = np.sign(affine.scale).astype(np.int64)
    empty = weights.is_empty() | (sign == 0)
    scales = np.where(empty, _suiting(bias / x.scale, weights.scales), scales)
    array = weights.zero_point + weights.centred * weights.along(sign)
    added = np.where(empty, np.rint(bias / (x.scale * scales)), np.rint(affine.shift / (x.scale * scales)))
    factor = np.where(empty, 0, sign)
    if bool(affine.shift.any()) and not _resolves(x.scale * scales, out):
        return "the scale of its bias would be larger than that of its output"
    return _result(node, weights, array, scales, weights.zero_point, (factor, added), 0.0)


def scale_inputs(node: Node, weights: ProductWeights, affine: Affine, x: TensorType) -> ChangedWeights | str:
    """Return the weights for input x instead of ``affine(x)``, or the refusal. Results stay the same.

    Args:
        x: type of the new input.
    """
    out, old, new = node.output.type, _quant(node.inputs[0]), x.quant
    assert out.quant is not None and new is not None
    reason = uneven_border(node.op) if affine.shift.any() else None
    if reason is not None:
        return reason
    factors, shifts = (_by_input(node, weights, vector) for vector in (affine.scale, affine.shift))
    if factors is None or shifts is None:
        return "each of its groups reads other channels"
    rest = tuple(axis for axis in range(weights.array.ndim) if axis != weights.axis)
    real = weights.centred * weights.along(weights.scales)
    bias = weights.bias * (old.scale * weights.scales) + (real * shifts).sum(axis=rest)
    wanted = real * factors
    magnitude = np.abs(np.broadcast_to(factors, wanted.shape))
    largest = magnitude.max(axis=rest)
    error, zero_point = 0.0, weights.zero_point
    if bool((magnitude == weights.along(largest)).all()):
        # One factor for all weights of a channel changes their scale only.
        array = zero_point + weights.centred * np.sign(factors).astype(np.int64)
        scales = _float32(weights.scales * largest)
    else:
        reach, zero_point = np.abs(wanted).max(axis=rest), 0
        scales = _float32(np.where(reach > 0, reach / weights.filters.type.dtype.range[1], weights.scales))
        array = np.rint(wanted / weights.along(scales)).astype(np.int64)
        error = _error(((array * weights.along(scales) - wanted) ** 2).sum(axis=rest), x, out)
        if error > LARGEST_ERROR:
            return (
                f"{affine.describe()} in {weights.filters.type.dtype.value} weights would change its outputs "
                f"by about {error:.1f} steps; the limit is {LARGEST_ERROR:g}"
            )
    scales = np.where(
        (array == zero_point).all(axis=rest), _suiting(bias / new.scale, weights.scales), scales
    )
    biases = np.rint(bias / (new.scale * scales))
    if bool(biases.any()) and not _resolves(new.scale * scales, out.element):
        return "the scale of its bias would be larger than that of its output"
    change = np.ones_like(weights.bias), biases - weights.bias
    return _result(node, weights, array, scales, zero_point, change, error)


def _quant(value: Value | None) -> Quant:
    assert value is not None and value.type.quant is not None
    return value.type.quant


def _float32(scales: Array) -> Array:
    return scales.astype(np.float32).astype(np.float64)


def _suiting(bias: Array, scales: Array) -> Array:
    """Return the scales of weights, chosen to suit the bias; for channels with zero weights only."""
    return np.where(bias != 0, _float32(np.abs(bias) / (1 << _BIAS_BITS)), scales)


def _resolves(units: Array, out: ElementType) -> bool:
    """Return whether a unit of the sums is at most one step of the output."""
    assert out.quant is not None
    return bool((units <= out.quant.scale).all())


def _error(squares: Array, x: TensorType, out: TensorType) -> float:
    """Return the root mean square of ``sum(error * x)`` for x uniform over its range, in output steps.

    Args:
        squares: sums of squares of the weights' errors, per channel.
    """
    assert x.quant is not None and out.quant is not None
    low, high = ((bound - x.quant.zero_point) * x.quant.scale for bound in x.dtype.range)
    mean_square = (low * low + low * high + high * high) / 3
    return float(np.sqrt(squares.max() * mean_square)) / out.quant.scale


def _result(
    node: Node,
    old: ProductWeights,
    array: Array,
    scales: Array,
    zero_point: int,
    change: tuple[Array, Array],
    error: float,
) -> ChangedWeights | str:
    """Return new weights with their types, or why these types cannot represent them.

    Args:
        change: factor and offset of the biases.
    """
    dtype = old.filters.type.dtype
    if array.min() < dtype.range[0] or array.max() > dtype.range[1]:
        return f"a weight of {dtype.range[0]} cannot be negated"
    tiny = float(np.finfo(np.float32).tiny)
    if not bool(((scales >= tiny) & np.isfinite(scales)).all()):
        return "its weights would need scales beyond the range of float32"
    if old.filters.type.quant is not None and old.filters.type.quant.axis is None and len(set(scales)) == 1:
        quant = Quant((float(scales[0]),), (zero_point,))
    elif zero_point:
        return f"weights with the zero point {zero_point} need one scale for all channels"
    else:
        quant = Quant(tuple(scales.tolist()), (0,) * scales.size, old.axis)
    factor, offset = change
    bias = factor * old.bias + offset
    given = node.inputs[0]
    assert given is not None
    bias_dtype = old.bias_dtype or BIAS_DTYPES[given.type.dtype, dtype][0]
    rest = tuple(axis for axis in range(array.ndim) if axis != old.axis)
    span = given.type.dtype.range[1] - given.type.dtype.range[0]
    reach = np.abs(bias) + np.abs(array - zero_point).sum(axis=rest) * span
    bias_type = TensorType(bias_dtype, bias.shape)
    # The requantisation of 64-bit sums uses 47 bits of them.
    limit = 1 << (46 if has_wide_sums(given.type, bias_type) else 31)
    if bool((reach >= limit).any()) or np.abs(bias).max() >= -bias_dtype.range[0]:
        return f"its sums would reach {float(reach.max()):.3g}; they must stay below {limit}"
    return ChangedWeights(
        array.astype(dtype.numpy),
        TensorType(dtype, array.shape, quant),
        bias.astype(bias_dtype.numpy) if old.bias_dtype is not None or bias.any() else None,
        bias_type,
        error,
        factor,
        offset.astype(np.int64),
    )


def _by_input(node: Node, weights: ProductWeights, vector: Array) -> Array | None:
    """Return numbers per input channel that broadcast against the weights; None if groups differ."""
    if bool((vector == vector[0]).all()):
        return np.full((1,) * weights.array.ndim, vector[0])
    if isinstance(node.op, DepthwiseConv2D):
        return np.repeat(vector, weights.array.shape[3] // vector.size)
    return vector if weights.array.shape[-1] == vector.size else None
