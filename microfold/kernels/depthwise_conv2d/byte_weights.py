"""float32 depthwise convolution with weights compressed to int8 and a scale for each channel."""

from __future__ import annotations

from microfold.ir.types import Array
from microfold.kernels.call import KernelCall
from microfold.kernels.depthwise_conv2d.portable import DepthwiseConv2DFloat, depthwise_matrix
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.byte_weights import ByteWeights


@register
class DepthwiseConv2DFloatBytes(ByteWeights, DepthwiseConv2DFloat):
    """float32 depthwise convolution with int8 weights. Each conversion of a weight serves a block of outputs.

    Each sum is scaled once. `ByteWeights` states the error bounds.
    """

    name = "f32_s8w_depthwise_conv2d__c_plane"
    like = "f32_depthwise_conv2d__c_plane"

    def rows(self, layer: LayerContext) -> Array:
        return depthwise_matrix(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        finish = self.byte_finish(layer, 1)
        return self.with_bytes(layer, self.call(layer, "depthwise_conv2d/f32_s8w.c.j2", finish))
