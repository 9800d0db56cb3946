"""Integer intervals per channel, and fixed-point scaling of intervals."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from microfold.arithmetic import numerics
from microfold.ir.types import Array, DType, ElementType, TensorType

INT32 = (-(1 << 31), (1 << 31) - 1)
# float64 sums, which the reference uses, are exact below this magnitude.
EXACT = 1 << 53


class Range(Struct, frozen=True, eq=False):
    """Smallest and largest value of each channel, for every input of the model and at every position.

    Channels are the indices of the last axis; a scalar is one channel.

    Attributes:
        low, high: int64 [channels].
    """

    low: Array
    high: Array

    @property
    def constant(self) -> Array:
        """Mask of the channels with only one value, bool [channels]."""
        return self.low == self.high

    @property
    def hull(self) -> tuple[int, int]:
        """Smallest and largest value over all channels."""
        return int(self.low.min()), int(self.high.max())

    def clip(self, low: int, high: int) -> Range:
        return Range(np.clip(self.low, low, high), np.clip(self.high, low, high))

    def union(self, low: Array | int, high: Array | int) -> Range:
        """Return the range extended to these values, per channel."""
        return Range(np.minimum(self.low, low), np.maximum(self.high, high))

    def where(self, known: Array, otherwise: Range) -> Range:
        """Return this range for known channels, and the other one elsewhere."""
        return Range(np.where(known, self.low, otherwise.low), np.where(known, self.high, otherwise.high))

    def spread(self, channels: int) -> Range:
        """Return the range of the value after it is broadcast to `channels` channels."""
        return Range(np.broadcast_to(self.low, (channels,)), np.broadcast_to(self.high, (channels,)))


def channel_count(t: TensorType) -> int:
    """Return the length of the last axis; 1 for a scalar."""
    return t.shape[-1] if t.shape else 1


def is_tracked(t: TensorType) -> bool:
    """Return whether int64 ranges are kept for values of a type: integers with at least one element."""
    return t.dtype.is_integer and t.dtype is not DType.UINT64 and t.size > 0


def full_range(t: TensorType) -> Range:
    """Return the range of the element type; it needs no memory per channel."""
    return uniform(*t.dtype.range, channel_count(t))


def uniform(low: int, high: int, channels: int) -> Range:
    """Return the same range for all channels; it needs no memory per channel and is read-only."""
    return Range(np.broadcast_to(np.int64(low), channels), np.broadcast_to(np.int64(high), channels))


def array_range(array: Array) -> Range:
    """Return the range of known data."""
    rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
    return Range(rows.min(axis=0).astype(np.int64), rows.max(axis=0).astype(np.int64))


def fits(values: Range, bounds: tuple[int, int]) -> Array:
    """Return which channels are within the bounds, bool [channels]."""
    return (values.low >= bounds[0]) & (values.high <= bounds[1])


def multiply(values: Range, mantissa: Array | int, shift: Array | int) -> tuple[Range, Array]:
    """Apply `numerics.multiply_by_quantized_multiplier` to a range; also return the valid channels.

    The function is monotone as long as no value leaves int32 before it is scaled down.
    """
    left = np.maximum(np.asarray(shift, np.int64), 0)
    limit = np.int64(1 << 31) >> left
    known = (values.low >= -limit) & (values.high < limit) & (np.asarray(mantissa) >= 0)
    safe = Range(np.where(known, values.low, 0), np.where(known, values.high, 0))
    low, high = (
        numerics.multiply_by_quantized_multiplier(x, mantissa, shift).astype(np.int64)
        for x in (safe.low, safe.high)
    )
    return Range(low, high), known


def multiply_wide(values: Range, mantissa: Array, shift: Array) -> tuple[Range, Array]:
    """Apply `numerics.multiply_int64_by_quantized_multiplier` to a range; also return the valid channels."""
    total = 15 - np.asarray(shift, np.int64)
    # A product of a 46-bit value and a 15-bit multiplier, plus the rounding addend, fits 62 bits.
    known = (
        (total >= 1) & (total <= 60) & fits(values, (-(1 << 46), (1 << 46) - 1)) & (np.asarray(mantissa) >= 0)
    )
    safe = Range(np.where(known, values.low, 0), np.where(known, values.high, 0))
    shift = np.where(known, shift, 0)
    reduced = np.where(mantissa < 0x7FFF0000, (mantissa.astype(np.int64) + (1 << 15)) >> 16, 0x7FFF)
    for bound in (safe.low, safe.high):
        scaled = (bound * reduced + (np.int64(1) << (14 - shift))) >> (15 - shift)
        known = known & (scaled >= INT32[0]) & (scaled <= INT32[1])
    low, high = (
        numerics.multiply_int64_by_quantized_multiplier(x, mantissa, shift).astype(np.int64)
        for x in (safe.low, safe.high)
    )
    return Range(low, high), known


def to_element(scaled: Range, known: Array, out: ElementType) -> Range:
    """Return the result of a requantisation: add the zero point and saturate; the full range if unknown."""
    assert out.quant is not None
    zero_point = out.quant.zero_point
    return saturate(Range(scaled.low + zero_point, scaled.high + zero_point), known, out)


def saturate(values: Range, known: Array, out: ElementType) -> Range:
    """Return values saturated to the type; the full range if they are unknown."""
    low, high = out.dtype.range
    result = values.clip(low, high)
    everything = Range(np.full_like(result.low, low), np.full_like(result.high, high))
    return result.where(known, everything)
