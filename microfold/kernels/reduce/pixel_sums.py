"""Sums of an image's pixels row by row, and the mean that follows from them.

They are not among the kernels that a model's layers choose from: nothing else computes these operators.
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
    """What both halves of a mean have in common: their layers are made for them.

    Class attributes:
        dtype: of the image.
        template: of the function.
    """

    code = 80
    dtype: ClassVar[DType] = DType.INT8
    template: ClassVar[str]

    def supports(self, layer: LayerContext) -> str | None:
        del layer
        return None

    @property
    def function(self) -> CFunction:
        """That of the types of pixels and sums in C."""
        types = ("float" if each.is_float else f"{each.value}_t" for each in (self.dtype, SUMMED[self.dtype]))
        return CFunction(
            self.template, self.name, tuple(zip(("pixels", "sums"), types, strict=True)), self.fields
        )


class PixelSumsInt8(_Half):
    """One channel after the other: the sum so far, and the row's pixels, in the order of the image."""

    name = "s8_pixel_sums__c"
    op = PixelSums
    fields = declare("pixels", "channels", Field("adds", "whether there are sums already"))
    template = "reduce/pixel_sums.c.j2"

    def terms(self, layer: LayerContext) -> Terms:
        x = layer.node.operands[0].type
        return Terms(call=1, channel=x.shape[3], element=x.size)

    def guess(self, term: str) -> float:
        return 4.0 if term == "element" else super().guess(term)

    def lower(self, layer: LayerContext) -> KernelCall:
        _, height, width, channels = layer.node.operands[0].type.shape
        op = layer.node.op
        assert isinstance(op, PixelSums)
        parameters = {"pixels": height * width, "channels": channels, "adds": int(op.adds)}
        return KernelCall(self.function, parameters)


class PixelSumsInt16(PixelSumsInt8):
    """The same of int16: an int32 holds the sum of so many pixels, see `means_of_sums`."""

    name = "s16_pixel_sums__c"
    dtype = DType.INT16


class PixelSumsFloat(PixelSumsInt8):
    """The same of float32: the additions of a pool over the whole image, in their order."""

    name = "f32_pixel_sums__c"
    dtype = DType.FLOAT32


class MeanOfSumsInt8(_Half):
    """Sums of int8, divided with halves rounded away from zero, and clamped."""

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
    """The same of int16."""

    name = "s16_mean_of_sums__c"
    dtype = DType.INT16


class MeanOfSumsFloat(MeanOfSumsInt8):
    """Sums of float32, divided and clamped."""

    name = "f32_mean_of_sums__c"
    dtype = DType.FLOAT32


# By the type of the image.
SUMS = {kernel.dtype: kernel for kernel in (PixelSumsInt8(), PixelSumsInt16(), PixelSumsFloat())}
MEANS = {kernel.dtype: kernel for kernel in (MeanOfSumsInt8(), MeanOfSumsInt16(), MeanOfSumsFloat())}
