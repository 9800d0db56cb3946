"""float32 convolution with weights compressed to int8 and a scale for each channel."""

from __future__ import annotations

from microfold.ir.types import Array
from microfold.kernels.call import KernelCall
from microfold.kernels.conv2d.portable import Conv2DFloat, filter_matrix
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.byte_weights import ByteWeights


@register
class Conv2DFloatBytes(ByteWeights, Conv2DFloat):
    """float32 convolution with int8 weights. Each conversion of a weight serves two pixels.

    Each sum is scaled once. `ByteWeights` states the error bounds.
    """

    name = "f32_s8w_conv2d__c_2x2"
    like = "f32_conv2d__c_2x2"

    def rows(self, layer: LayerContext) -> Array:
        return filter_matrix(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        finish = self.byte_finish(layer, self.CHANNELS)
        return self.with_bytes(layer, self.call(layer, "conv2d/f32_s8w.c.j2", finish))
