"""Fully connected layers for cores without SIMD instructions."""

from __future__ import annotations

import numpy as np

from microfold.kernels import accumulate
from microfold.kernels.fully_connected import (
    centred_weights,
    fully_connected_types,
    unsupported_integer_fully_connected,
    weights_zero_point,
)
from microfold.kernels.kernel import Call, Constant, Function, Kernel, Parameter, Site, register
from microfold.kernels.requantize_narrow import channel_records
from microfold.ops.fully_connected import FullyConnected


class _ThumbUnits(Kernel):
    """As many units at a time as there are registers for their sums."""

    op = FullyConnected
    units: int
    """Computed together."""
    unroll: int
    """Inputs of one iteration of the inner loop; those behind a multiple of it are taken one by one."""
    thumb1: bool
    """Weights are kept as uint8, 128 larger."""
    shared: float
    """Instructions of an input for all units together."""
    product: float
    output: float

    def supports(self, site: Site) -> str | None:
        return unsupported_integer_fully_connected(site)

    def _group(self, site: Site) -> int:
        return min(fully_connected_types(site)[2].shape[1], self.units)

    def cost(self, site: Site) -> float:
        x, _, out = fully_connected_types(site)
        group = self._group(site)
        groups = -(-out.shape[1] // group)
        sums = groups * (x.shape[1] * (group * self.product + self.shared) + 30)
        offset = 6 * x.shape[1] if self._zero_point(site) else 0
        return x.shape[0] * (sums + out.shape[1] * self.output + offset)

    def _zero_point(self, site: Site) -> int:
        """Of the weights as they are kept."""
        return weights_zero_point(site) + (128 if self.thumb1 else 0)

    def lower(self, site: Site) -> Call:
        x, weights, out = fully_connected_types(site)
        array = site.array(1)
        assert isinstance(site.node.op, FullyConnected) and array is not None
        assert x.quant is not None and weights.quant is not None
        multipliers = site.node.op.multipliers(x.quant, weights.quant, weights.shape[0])
        form, records, clamped, limits = channel_records(
            site, centred_weights(site), multipliers, narrow=self.thumb1
        )
        group = self._group(site)
        zero_point = self._zero_point(site)
        packed = accumulate.interleave_channels(array, group)
        if self.thumb1:
            packed = (packed.astype(np.int16) + 128).astype(np.uint8)
        spec = (
            ("thumb1", self.thumb1),
            ("requantize", form),
            ("clamped", clamped),
            ("units", group),
            ("unroll", self.unroll),
            ("rest", x.shape[1] % self.unroll != 0),
            ("weights_zero_point", zero_point != 0),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", packed),
            "channels": Constant("channels", accumulate.pad_records(records, group), record="mf_channel"),
            "batch": x.shape[0],
            "inputs": x.shape[1],
            "outputs": out.shape[1],
        }
        if zero_point:
            parameters |= {"weights_zero_point": zero_point}
        return Call(Function("fully_connected/thumb.c.j2", self.name, spec), parameters | limits)


@register
class FullyConnectedThumb2(_ThumbUnits):
    name = "s8_fully_connected__thumb2_8"
    features = frozenset({"thumb2"})
    units = 8
    unroll = 4
    thumb1 = False
    shared = 1.5
    product = 2
    output = 17


@register
class FullyConnectedThumb1(_ThumbUnits):
    name = "s8_fully_connected__thumb1_8"
    features = frozenset({"thumb1"})
    units = 8
    unroll = 4
    thumb1 = True
    shared = 2.3
    product = 3
    output = 30
