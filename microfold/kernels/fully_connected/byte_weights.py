"""float32 fully connected layers with weights compressed to int8 and a scale for each unit."""

from __future__ import annotations

from microfold.ir.types import Array
from microfold.kernels.call import KernelCall
from microfold.kernels.fully_connected.portable import FullyConnectedFloat
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.byte_weights import ByteWeights


@register
class FullyConnectedFloatBytes(ByteWeights, FullyConnectedFloat):
    """float32 fully connected layer with int8 weights, each converted for every product.

    Each sum is scaled once. `ByteWeights` states the error bounds.
    """

    name = "f32_s8w_fully_connected__c_4"
    like = "f32_fully_connected__c_4"

    def rows(self, layer: LayerContext) -> Array:
        weights = layer.array(1)
        assert weights is not None
        return weights

    def lower(self, layer: LayerContext) -> KernelCall:
        finish = self.byte_finish(layer, self.group(layer))
        return self.with_bytes(layer, self.call(layer, "fully_connected/f32_s8w.c.j2", finish))
