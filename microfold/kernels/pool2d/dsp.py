"""Pooling for cores with DSP instructions: four int8 channels, or two int16 channels, in a word."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.pool2d.portable import (
    POOL_FIELDS,
    pool_parameters,
    pool_types,
    unsupported_pool,
    window_terms,
)
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import rows_and_taps
from microfold.ops.pool2d import AveragePool2D, MaxPool2D

# A sum of this many int8 values fits 16 bits: 256 * -128 = -2^15.
MAX_COUNT = 256
# Elements that are added together in window rows of at least LONG_RUN elements; shorter rows add 2.
LONG_UNROLL, LONG_RUN = 4, 16


def _unroll(layer: LayerContext) -> int:
    """Return the number of elements of a window row that are added together, with adjacent loads."""
    x, _, window = pool_types(layer)
    run = window.size[1] if window.size[1] < x.shape[2] else window.size[0] * window.size[1]
    return LONG_UNROLL if run >= LONG_RUN else 2


class _Pool2DDsp(Kernel):
    """Pooling pixel by pixel, with the channels of a word at once; the last word may overlap the one before.

    The kernel has no constants. Means are rounded half away from zero by a division, as in portable C. If
    int8 windows are as wide as the image, their rows are merged into one.

    Class attributes:
        kind: ``average`` or ``max``.
        dtype: element type of input and output.
    """

    kind: str
    features = frozenset({"dsp"})
    dtype: ClassVar[DType] = DType.INT8
    # Channels per word.
    lanes: ClassVar[int] = 4
    fields = (*POOL_FIELDS, *output_range.LIMIT_FIELDS)

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_pool(layer, self.dtype)
        if reason is not None:
            return reason
        channels = layer.node.outputs[0].type.shape[3]
        return f"it needs at least {self.lanes} channels; got {channels}" if channels < self.lanes else None

    def terms(self, layer: LayerContext) -> Terms:
        _, out, _ = pool_types(layer)
        words, (clamp, _) = -(-out.shape[3] // self.lanes), output_range.clamping(layer.node)
        clamped = out.size // out.shape[3] * words * clamp
        return Terms(call=1, clamped=clamped) + window_terms(layer, "word", words, joins_rows=True)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, out, window = pool_types(layer)
        return window_overlap(x, out, window, 1, reads_first=False)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        low, high = output_range.integer_bounds(layer.node)
        clamp = (low, high) != self.dtype.range
        spec: tuple[tuple[str, SpecValue], ...] = (("kind", self.kind), ("unroll", _unroll(layer)))
        if self.kind == "max":
            spec = (*spec, ("clamp", clamp))
        parameters = pool_parameters(layer)
        # Means are rounded, and therefore always clamped.
        if clamp or self.kind == "average":
            parameters |= {"output_minimum": low, "output_maximum": high}
        return KernelCall(CFunction("pool2d/dsp.c.j2", self.name, spec, self.fields), parameters)


@register
class AveragePool2DDsp(_Pool2DDsp):
    """Means of int8, with sums of four channels in the halfwords of two words, by SXTAB16.

    The sums fit 16 bits, because `supports` requires at most `MAX_COUNT` elements in a window.
    """

    name = "s8_average_pool2d__dsp"
    op = AveragePool2D
    kind = "average"

    def supports(self, layer: LayerContext) -> str | None:
        _, _, window = pool_types(layer)
        count = window.size[0] * window.size[1]
        if count > MAX_COUNT:
            return f"it needs a window of at most {MAX_COUNT} elements; got {count}"
        return super().supports(layer)


@register
class MaxPool2DDsp(_Pool2DDsp):
    """Maxima of four int8 at a time: SSUB8 compares the bytes, SEL selects the larger ones."""

    name = "s8_max_pool2d__dsp"
    op = MaxPool2D
    kind = "max"


class _Pool2DInt16Dsp(_Pool2DDsp):
    """Pooling of int16 in blocks of 2, 4 or 8 channels: the largest block that is not wider than the image.

    Class attributes:
        most: maximum number of channels per block.
    """

    dtype = DType.INT16
    lanes = 2
    most: ClassVar[int]

    def _lanes(self, layer: LayerContext) -> int:
        channels = layer.node.outputs[0].type.shape[3]
        return max(lanes for lanes in (2, 4, 8) if lanes <= min(channels, self.most))

    def terms(self, layer: LayerContext) -> Terms:
        x, out, window = pool_types(layer)
        lanes = self._lanes(layer)
        blocks = -(-out.shape[3] // lanes)
        done = out.size // out.shape[3] * blocks * lanes
        clamp = self.kind == "max" and output_range.clamping(layer.node)[0]
        taps = rows_and_taps(x, out, window)[1] * blocks
        return Terms(call=1, tap_lane=taps * lanes, lane=done, clamped=done * clamp) + window_terms(
            layer, "block", blocks
        )

    def lower(self, layer: LayerContext) -> KernelCall:
        call = super().lower(layer)
        function = replace(
            call.function,
            template="pool2d/s16_dsp.c.j2",
            spec=(*call.function.spec, ("lanes", self._lanes(layer))),
        )
        return replace(call, function=function)


@register
class AveragePool2DInt16Dsp(_Pool2DInt16Dsp):
    """Means of int16, with 32-bit sums: `supports` requires windows of less than 2^16 elements."""

    name = "s16_average_pool2d__dsp"
    op = AveragePool2D
    kind = "average"
    most = 4

    def supports(self, layer: LayerContext) -> str | None:
        _, _, window = pool_types(layer)
        count = window.size[0] * window.size[1]
        if count >= 1 << 16:
            return f"it needs a window of less than {1 << 16} elements; got {count}"
        return super().supports(layer)


@register
class MaxPool2DInt16Dsp(_Pool2DInt16Dsp):
    """Maxima of two int16 at a time, for up to eight channels."""

    name = "s16_max_pool2d__dsp"
    op = MaxPool2D
    kind = "max"
    most = 8
