"""Fully connected layers with the legacy uint8 quantisation, computed as int8 with a single rounding."""

from __future__ import annotations

from msgspec.structs import replace

from microfold.kernels.call import Constant, KernelCall
from microfold.kernels.fully_connected.portable import (
    UnitGroups,
    centred_weights,
    fully_connected_types,
    unsupported_integer_fully_connected,
    weights_zero_point,
)
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize.finish import clamped_finish
from microfold.kernels.requantize.mul_hi import Requantization
from microfold.kernels.requantize.single_rounding import plan_single_rounding
from microfold.ops.fully_connected.legacy_fully_connected import LegacyFullyConnected


@register
class LegacyFullyConnectedPortable(UnitGroups):
    """Legacy fully connected layer of up to 4 units at a time.

    `channels` has records (bias, multiplier, addend, shift) that `plan_single_rounding` proves.
    """

    name = "s8_legacy_fully_connected__c_4"
    like = "s8_fully_connected__c_4"
    op = LegacyFullyConnected

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_fully_connected(layer)
        if reason is None and self._plan(layer) is None:
            return "no 31-bit multiplier has the reference's results"
        return reason

    def _plan(self, layer: LayerContext) -> Requantization | None:
        op = layer.node.op
        assert isinstance(op, LegacyFullyConnected) and op.out.quant is not None
        x, weights, _ = fully_connected_types(layer)
        scale = op.scale(x, weights)
        bias, (low, high) = product_sum.bias_and_bounds(layer, centred_weights(layer))
        bounds = int(low.min()), int(high.max())
        return plan_single_rounding(
            bias, bounds, lambda sums: op.rescaled(sums, scale), scale, op.out.quant.zero_point
        )

    def lower(self, layer: LayerContext) -> KernelCall:
        plan, zero_point = self._plan(layer), weights_zero_point(layer)
        assert plan is not None
        padded = product_sum.pad_channels(plan.records, self.group(layer))
        choice = (("requantize", plan.form.value), ("weights_zero_point", zero_point != 0))
        records = Constant("channels", padded, record="mf_channel")
        call = self.call(layer, "fully_connected/portable.c.j2", clamped_finish(layer, records, choice))
        if not zero_point:
            return call
        return replace(call, parameters=dict(call.parameters) | {"weights_zero_point": zero_point})
