"""Hybrid depthwise convolution: the kernels for int16 activations, with sums that are scaled to float32.

`dynamic_finish` scales the sums. Activations are in [-255, 255], so that sums fit 32 bits.
"""

from __future__ import annotations

from msgspec.structs import replace

from microfold.ir.types import Array
from microfold.kernels.call import KernelCall
from microfold.kernels.depthwise_conv2d.portable import PlaneDepthwise
from microfold.kernels.depthwise_conv2d.s16_dsp import DepthwiseConv2DInt16Dsp, unsupported_taps
from microfold.kernels.depthwise_conv2d.s16_mve import DepthwiseConv2DInt16Mve
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize.dynamic_scale import (
    SUMS,
    dynamic_finish,
    scale_cost,
    unsupported_hybrid,
    with_scale_fields,
)
from microfold.kernels.requantize.finish import OutputStage
from microfold.ops.convolution.hybrid_depthwise_conv2d import HybridDepthwiseConv2D


class _HybridDepthwise(Kernel):
    """Mixin that turns a kernel for int16 activations into a hybrid one. It is the first base class."""

    op = HybridDepthwiseConv2D

    def cost(self, layer: LayerContext) -> float:
        return super().cost(layer) + scale_cost(layer)

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_hybrid(layer)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return super().overlap(layer, index) if index == 0 else None

    def in_place(self, layer: LayerContext, index: int) -> bool:
        return False  # Outputs need twice the bytes of inputs.

    def supports_indirection(self, layer: LayerContext) -> bool:
        return False


@register
class HybridDepthwiseConv2DPortable(_HybridDepthwise, PlaneDepthwise):
    """Hybrid depthwise convolution of one channel at a time, with plane and weights of `PlaneDepthwise`."""

    name = "s16_f32_hybrid_depthwise_conv2d__c_plane"
    like = "s16_depthwise_conv2d__c_plane"
    fields = with_scale_fields(
        tuple(field for field in PlaneDepthwise.fields if field.name != "input_zero_point")
    )

    def lower(self, layer: LayerContext) -> KernelCall:
        return self.call(layer, "depthwise_conv2d/hybrid.c.j2", dynamic_finish(layer))


@register
class HybridDepthwiseConv2DDsp(_HybridDepthwise, DepthwiseConv2DInt16Dsp):
    """Hybrid depthwise convolution by SMLAD, with plane and weights of `DepthwiseConv2DInt16Dsp`."""

    name = "s16_f32_hybrid_depthwise_conv2d__dsp_1x4"
    like = "s16_depthwise_conv2d__dsp_1x4"
    fields = with_scale_fields(DepthwiseConv2DInt16Dsp.fields)

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_hybrid(layer) or unsupported_taps(layer)

    def finish(self, layer: LayerContext) -> OutputStage:
        finish = dynamic_finish(layer)
        return replace(finish, spec=(("requantize", SUMS), *finish.spec))


@register
class HybridDepthwiseConv2DMve(_HybridDepthwise, DepthwiseConv2DInt16Mve):
    """Hybrid depthwise convolution of 1 pixel by 8 channels, with weights of `DepthwiseConv2DInt16Mve`."""

    name = "s16_f32_hybrid_depthwise_conv2d__mve_8"
    like = "s16_depthwise_conv2d__mve_8"
    fields = with_scale_fields(DepthwiseConv2DInt16Mve.fields)

    def finish(self, layer: LayerContext, lanes: Array) -> OutputStage:
        del lanes
        finish = dynamic_finish(layer)
        return replace(finish, spec=(("requantize", SUMS), *finish.spec))
