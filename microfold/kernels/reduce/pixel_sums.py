"""Sums of an image's pixels row by row, and the mean that is computed from them.

Kernel selection does not consider these kernels, because their operators have no other kernels.
"""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.reduce.pixel_sums import SUMMED, MeanOfSums, PixelSums


class _Half(Kernel):
    """Base class of both halves of a mean, whose layers are created for these kernels.

    Class attributes:
        dtype: element type of the image.
        template: path of the C template.
    """

    code = 80
    dtype: ClassVar[DType] = DType.INT8
    template: ClassVar[str]

    def supports(self, layer: LayerContext) -> str | None:
        del layer
        return None

    @property
    def function(self) -> CFunction:
        """C function for the types of pixels and sums."""
        types = ("float" if each.is_float else f"{each.value}_t" for each in (self.dtype, SUMMED[self.dtype]))
        return CFunction(
            self.template, self.name, tuple(zip(("pixels", "sums"), types, strict=True)), self.fields
        )


class PixelSumsInt8(_Half):
    """int8 sums, one channel after the other: the previous sum plus the row's pixels, in image order."""

    name = "s8_pixel_sums__c"
    op = PixelSums
    fields = declare("pixels", "channels", Field("adds", "whether the sums start with previous ones"))
    template = "reduce/pixel_sums.c.j2"

    def terms(self, layer: LayerContext) -> Terms:
        x = layer.node.operands[0].type
        return Terms(call=1, channel=x.shape[3], element=x.size)

    def default_coefficient(self, term: str) -> float:
        return 4.0 if term == "element" else super().default_coefficient(term)

    def lower(self, layer: LayerContext) -> KernelCall:
        _, height, width, channels = layer.node.operands[0].type.shape
        op = layer.node.op
        assert isinstance(op, PixelSums)
        parameters = {"pixels": height * width, "channels": channels, "adds": int(op.adds)}
        return KernelCall(self.function, parameters)


class PixelSumsInt16(PixelSumsInt8):
    """int16 sums in int32, which has room for the pixels that `means_of_sums` allows."""

    name = "s16_pixel_sums__c"
    dtype = DType.INT16


class PixelSumsFloat(PixelSumsInt8):
    """float32 sums, with the additions of a pool over the whole image in the same order."""

    name = "f32_pixel_sums__c"
    dtype = DType.FLOAT32


class MeanOfSumsInt8(_Half):
    """int8 means: sums, divided with rounding half away from zero, and clamped."""

    name = "s8_mean_of_sums__c"
    op = MeanOfSums
    fields = (*declare("count", "channels"), *output_range.LIMIT_FIELDS)
    template = "reduce/mean_of_sums.c.j2"

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1, channel=layer.node.operands[0].type.size)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return 0

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, MeanOfSums)
        bounds = output_range.float_bounds if self.dtype.is_float else output_range.integer_bounds
        low, high = bounds(layer.node)
        parameters: dict[str, Parameter] = {
            "count": op.count,
            "channels": layer.node.operands[0].type.size,
            "output_minimum": low,
            "output_maximum": high,
        }
        return KernelCall(self.function, parameters)


class MeanOfSumsInt16(MeanOfSumsInt8):
    """int16 means: sums, divided with rounding half away from zero, and clamped."""

    name = "s16_mean_of_sums__c"
    dtype = DType.INT16


class MeanOfSumsFloat(MeanOfSumsInt8):
    """float32 means: sums, divided and clamped."""

    name = "f32_mean_of_sums__c"
    dtype = DType.FLOAT32


# Kernels by the element type of the image.
SUMS = {kernel.dtype: kernel for kernel in (PixelSumsInt8(), PixelSumsInt16(), PixelSumsFloat())}
MEANS = {kernel.dtype: kernel for kernel in (MeanOfSumsInt8(), MeanOfSumsInt16(), MeanOfSumsFloat())}
