"""float32 depthwise convolutions with weights of int8 and a step for each channel."""

from __future__ import annotations

from microfold.ir.types import Array
from microfold.kernels.call import KernelCall
from microfold.kernels.depthwise_conv2d.portable import DepthwiseConv2DFloat, depthwise_matrix
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.byte_weights import ByteWeights


@register
class DepthwiseConv2DFloatBytes(ByteWeights, DepthwiseConv2DFloat):
    """A weight is converted for a block of outputs; a sum is scaled once.

    `ByteWeights` proves what that may change.
    """

    name = "f32_s8w_depthwise_conv2d__c_plane"
    like = "f32_depthwise_conv2d__c_plane"

    def rows(self, layer: LayerContext) -> Array:
        return depthwise_matrix(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        finish = self.byte_finish(layer, 1)
        return self.with_bytes(layer, self.call(layer, "depthwise_conv2d/f32_s8w.c.j2", finish))
