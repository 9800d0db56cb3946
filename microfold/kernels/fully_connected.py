"""Fully connected kernels in portable C, and what all of them share."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microfold.ir.types import Array, TensorType
from microfold.kernels import accumulate, epilogue, requantize
from microfold.kernels.kernel import Call, Constant, Function, Kernel, Parameter, Site, register
from microfold.ops.fully_connected import FullyConnected


def fully_connected_types(site: Site) -> tuple[TensorType, TensorType, TensorType]:
    """Types of input [N, K], weights [M, K] and output [N, M]."""
    x, weights = site.node.inputs[0], site.node.inputs[1]
    assert x is not None and weights is not None
    return x.type, weights.type, site.node.outputs[0].type


def weights_zero_point(site: Site) -> int:
    """Zero point of the weights; 0 where they have one scale per channel."""
    quant = fully_connected_types(site)[1].quant
    assert quant is not None
    return quant.zero_points[0] if quant.axis is None else 0


def centred_weights(site: Site) -> Array:
    """The constant weights [M, K] less their zero point, int16."""
    weights = site.array(1)
    assert weights is not None
    return weights.astype(np.int16) - np.int16(weights_zero_point(site))


def unsupported_integer_fully_connected(site: Site) -> str | None:
    """The conditions that all int8 fully connected kernels share; weights may have a zero point."""
    reason = accumulate.unsupported_int8_constants(site)
    return reason or accumulate.unsupported_bounds(site, centred_weights(site))


def unit_records(site: Site) -> tuple[requantize.Requantization, Mapping[str, Parameter]]:
    """Requantisation of an int8 fully connected layer, and the output bounds as layer fields.

    With a weight zero point z the sums that it starts from are ``bias + sum((w - z) * x)``.
    """
    x, weights, _ = fully_connected_types(site)
    assert isinstance(site.node.op, FullyConnected) and x.quant is not None and weights.quant is not None
    multipliers = site.node.op.multipliers(x.quant, weights.quant, weights.shape[0])
    return accumulate.output_records(site, centred_weights(site), multipliers)


@register
class FullyConnectedPortable(Kernel):
    """Up to 4 units at a time."""

    name = "s8_fully_connected__c_4"
    op = FullyConnected
    UNITS = 4

    def supports(self, site: Site) -> str | None:
        return unsupported_integer_fully_connected(site)

    def cost(self, site: Site) -> float:
        x, _, out = fully_connected_types(site)
        return out.size * (2.5 * x.shape[1] + 20)

    def lower(self, site: Site) -> Call:
        x, _, out = fully_connected_types(site)
        depth, units = x.shape[1], out.shape[1]
        group = min(units, self.UNITS)
        weights = site.array(1)
        assert weights is not None
        zero_point = weights_zero_point(site)
        plan, _ = unit_records(site)
        clamped, limits = epilogue.clamping(site.node)
        spec = (
            ("requantize", plan.form.value),
            ("clamped", clamped),
            ("units", group),
            ("unroll", accumulate.unroll_factor(depth)),
            ("weights_zero_point", zero_point != 0),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", accumulate.interleave_channels(weights, group)),
            "channels": Constant("channels", accumulate.pad_channels(plan.records, group), record="mf_channel"),
            "batch": x.shape[0],
            "inputs": depth,
            "outputs": units,
        }
        if zero_point:
            parameters["weights_zero_point"] = zero_point
        return Call(Function("fully_connected/c.c.j2", self.name, spec), parameters | limits)
