"""Lookup of 8-bit values in a table, and the reference's tables of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from microfold.arithmetic.numerics import round_half_away_array
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType

FloatRange = tuple[np.float32, np.float32]
TABLE_SIZE = 256


@register
class Lookup(Op, frozen=True):
    """Table entry for each element: any function of 8-bit values.

    Attributes:
        table: 256 integers of the result's type; the first is for the lowest input.
    """

    name: ClassVar[str] = "lookup"
    pattern: ClassVar[Pattern] = Pattern.ELEMENTWISE
    any_zero_point: ClassVar[bool] = True

    table: tuple[int, ...]
    out: ElementType

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype in (DType.INT8, DType.UINT8),
            f"lookup: the input must be int8 or uint8; it is {x.dtype.value}",
        )
        require(
            self.out.dtype in (DType.INT8, DType.UINT8, DType.INT16),
            f"lookup: the result must be int8, uint8 or int16; it is {self.out.dtype.value}",
        )
        low, high = self.out.dtype.range
        require(
            len(self.table) == TABLE_SIZE and low <= min(self.table) and max(self.table) <= high,
            f"lookup: the table must be {TABLE_SIZE} numbers in [{low}, {high}]; they are "
            f"{len(self.table)} in [{min(self.table, default=0)}, {max(self.table, default=0)}]",
        )
        return x.with_element(self.out)

    def reference(self, x: Tensor) -> Array:
        table = np.array(self.table, self.out.dtype.numpy)
        return table[x.data.astype(np.int32) - x.type.dtype.range[0]]


def rounded_once(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return a function of float32 arrays that is evaluated in double and rounded once, like a good libm."""
    return lambda x: function(x.astype(np.float64)).astype(np.float32)


def table(op: Op, element: ElementType) -> Array:
    """Return the result of an elementwise operator for each 8-bit input, lowest input first; [256]."""
    low, high = element.dtype.range
    inputs = np.arange(low, high + 1).astype(element.dtype.numpy)
    (result,) = op.evaluate([Tensor(TensorType(element.dtype, inputs.shape, element.quant), inputs)])
    return result.data


def int8_table(function: Callable[[Array], Array], x: ElementType, out: ElementType) -> Array:
    """Return the reference's table of a real function, in float32; lowest input first; [256]."""
    assert x.quant is not None
    assert out.quant is not None
    low, high = x.dtype.range
    real = np.float32(x.quant.scale) * (np.arange(low, high + 1) - x.quant.zero_point).astype(np.float32)
    inverse = np.float32(1) / np.float32(out.quant.scale)
    with np.errstate(all="ignore"):
        scaled = round_half_away_array(function(real).astype(np.float32) * inverse)
        limited = np.clip(np.nan_to_num(scaled + np.float32(out.quant.zero_point), nan=0.0), *out.dtype.range)
    return limited.astype(out.dtype.numpy)


def int16_table(
    function: Callable[[Array], Array], input_range: FloatRange, output_range: FloatRange
) -> Array:
    """Return the reference's table of a real function for interpolated int16 lookups, int16 [513].

    Samples are shifted by half the interpolation error in the middle of their interval. The arithmetic is
    float32, including the function's.
    """
    start, end = input_range
    kind = np.float32
    step = (end - start) / kind(512)
    scale = kind(65536) / (output_range[1] - output_range[0])
    positions = np.arange(512).astype(kind)
    left = function(start + positions * step) * scale
    middle = round_half_away_array(function(start + positions * step + step / kind(2)) * scale)
    right = function(start + (positions + kind(1)) * step) * scale
    sample = round_half_away_array(left)
    error = round_half_away_array((right + sample) / kind(2)) - middle
    body = sample - round_half_away_array(error / kind(2))
    last = round_half_away_array(function(np.asarray([end], kind)) * scale)
    return np.clip(np.concatenate([body, last]), -32768, 32767).astype(np.int16)


def int16_lookup(x: Array, table: Array) -> Array:
    """Return the interpolated lookup of int16 values in a table of 513 entries, int16."""
    wide = np.asarray(x, np.int32)
    index = 256 + (wide >> 7)
    base = table[index].astype(np.int32)
    # The difference of neighbours is truncated to 16 bits.
    slope = (table[index + 1].astype(np.int32) - base).astype(np.int16).astype(np.int32)
    return (base + ((slope * (wide & 0x7F) + 64) >> 7)).astype(np.int16)
