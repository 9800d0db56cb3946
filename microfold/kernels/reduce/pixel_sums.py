"""Sums of an image's pixels row by row, and the mean that follows from them.

They are not among the kernels that a model's layers choose from: nothing else computes these operators.
"""

from __future__ import annotations

from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.reduce.pixel_sums import MeanOfSums, PixelSums


class PixelSumsInt8(Kernel):
    """One channel after the other: the sum so far, and the row's pixels."""

    name = "s8_pixel_sums__c"
    op = PixelSums
    code = 80
    fields = declare("pixels", "channels", Field("adds", "whether there are sums already"))

    def supports(self, layer: LayerContext) -> str | None:
        del layer
        return None

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
        return KernelCall(CFunction("reduce/pixel_sums.c.j2", self.name, (), self.fields), parameters)


class MeanOfSumsInt8(Kernel):
    """Sums of int8, divided with halves rounded away from zero, and clamped."""

    name = "s8_mean_of_sums__c"
    op = MeanOfSums
    code = 80
    fields = (*declare("count", "channels"), *output_range.LIMIT_FIELDS)

    def supports(self, layer: LayerContext) -> str | None:
        del layer
        return None

    def terms(self, layer: LayerContext) -> Terms:
        return Terms(call=1, channel=layer.node.operands[0].type.size)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return 0

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, MeanOfSums)
        low, high = output_range.integer_bounds(layer.node)
        parameters = {
            "count": op.count,
            "channels": layer.node.operands[0].type.size,
            "output_minimum": low,
            "output_maximum": high,
        }
        return KernelCall(CFunction("reduce/mean_of_sums.c.j2", self.name, (), self.fields), parameters)
