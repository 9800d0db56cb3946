"""Pooling with Helium: channels in the lanes of vectors."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing.mve import LANES
from microfold.kernels.pool2d.portable import pool_parameters, pool_types, unsupported_pool, window_terms
from microfold.kernels.requantize import output_range
from microfold.ops.pool2d import AveragePool2D, MaxPool2D

# A sum of this many int8 values fits int16.
_NARROW_COUNT = 255
# Largest count for which division by multiplication is exact: (2^(bits - 1) + 1/2) * count^2 < 2^31.
LARGEST_COUNT = {DType.INT8: 4087, DType.INT16: 255}


class _Pool2DMve(Kernel):
    """Pooling pixel by pixel, with the channels of a vector at once; the tail is predicated.

    The kernel has no constants except the shape.

    Class attributes:
        kind: ``average`` or ``max``.
        dtype: element type of input and output.
    """

    features: ClassVar[frozenset[str]] = frozenset({"mve"})
    kind: ClassVar[str]
    dtype: ClassVar[DType] = DType.INT8
    fields = declare(
        "batch",
        "input_height",
        "input_width",
        "output_height",
        "output_width",
        "channels",
        "kernel_height",
        "kernel_width",
        "stride_height",
        "stride_width",
        "pad_top",
        "pad_left",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_pool(layer, self.dtype)

    def terms(self, layer: LayerContext) -> Terms:
        _, out, _ = pool_types(layer)
        return Terms(call=1) + window_terms(layer, "block", -(-out.shape[3] // self.lanes(layer)))

    def lanes(self, layer: LayerContext) -> int:
        """Return the number of channels per vector."""
        return LANES // self.dtype.itemsize

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, out, window = pool_types(layer)
        # Channels are written before the next channels of the same pixel are read.
        return window_overlap(x, out, window, 1, reads_first=False)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        clamp, limits = output_range.clamping(layer.node)
        spec = (
            ("kind", self.kind),
            ("type", "float" if self.dtype.is_float else f"{self.dtype.value}_t"),
            ("wide", self.lanes(layer) == 4),
            ("clamp", clamp),
        )
        return KernelCall(
            CFunction("pool2d/mve.c.j2", self.name, spec, self.fields), pool_parameters(layer) | limits
        )


class _IntegerAverage(_Pool2DMve):
    """Integer means with division by multiplication, which is exact for up to `LARGEST_COUNT` elements."""

    op = AveragePool2D
    kind = "average"

    def supports(self, layer: LayerContext) -> str | None:
        _, _, window = pool_types(layer)
        count, largest = window.size[0] * window.size[1], LARGEST_COUNT[self.dtype]
        if count > largest:
            return f"it needs a window of at most {largest} elements; got {count}"
        return super().supports(layer)


@register
class AveragePool2DMve(_IntegerAverage):
    """int8 means, with sums of 8 channels in int16, or of 4 channels in int32 if the window is large."""

    name = "s8_average_pool2d__mve"

    def lanes(self, layer: LayerContext) -> int:
        _, _, window = pool_types(layer)
        return 8 if window.size[0] * window.size[1] <= _NARROW_COUNT else 4


@register
class AveragePool2DInt16Mve(_IntegerAverage):
    """int16 means, with sums of 4 channels in int32."""

    name = "s16_average_pool2d__mve"
    dtype = DType.INT16

    def lanes(self, layer: LayerContext) -> int:
        return 4


@register
class AveragePool2DFloatMve(_Pool2DMve):
    """float32 means: the sum is multiplied by the reciprocal of the count, although the reference divides."""

    name = "f32_average_pool2d__mve"
    op = AveragePool2D
    features = frozenset({"mve_fp"})
    dtype = DType.FLOAT32
    kind = "average"


@register
class MaxPool2DMve(_Pool2DMve):
    """int8 maxima of 16 channels at a time."""

    name = "s8_max_pool2d__mve"
    op = MaxPool2D
    kind = "max"


@register
class MaxPool2DInt16Mve(MaxPool2DMve):
    """int16 maxima of 8 channels at a time."""

    name = "s16_max_pool2d__mve"
    dtype = DType.INT16


@register
class MaxPool2DFloatMve(MaxPool2DMve):
    """float32 maxima of 4 channels at a time, by VMAXNM."""

    name = "f32_max_pool2d__mve"
    features = frozenset({"mve_fp"})
    dtype = DType.FLOAT32
