"""Fully connected layers by the generic function of convolutions, which share its code."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from microfold.kernels.call import KernelCall, Parameter
from microfold.kernels.conv2d.dsp_compact import (
    compact_call,
    compact_terms,
    refuses_packed,
)
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fully_connected.portable import (
    centred_weights,
    fully_connected_types,
    unit_multipliers,
    unsupported_integer_fully_connected,
)
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import smlad
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.kernels.requantize.pre_shifted_accumulator import SmladRequantization
from microfold.ops.fully_connected.fully_connected import FullyConnected


@register
class FullyConnectedCompactDsp(Kernel):
    """Fully connected layer by the function of `Conv2DCompactDsp`, with the batch as a row of pixels.

    A batch of 1 takes as long as a batch of 4. The constants have the layout of `Conv2DCompactDsp`.
    `smlad.plan_requantization` proves the form.
    """

    name = "s8_fully_connected__dsp_compact"
    op = FullyConnected
    features = frozenset({"dsp"})
    trades = frozenset({ResourceTradeoff.GENERIC_FUNCTION})
    code = 950
    # Whether all units must have the same right shift.
    COMMON: ClassVar[bool] = False

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_integer_fully_connected(layer)

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        batch, units = out.shape
        general = not self.COMMON and self._plan(layer).form is RequantizeForm.GENERAL
        widen = Terms(call=1, row=batch, widened=batch * x.shape[1])
        return widen + compact_terms(batch, units, _pairs(layer), general)

    def lower(self, layer: LayerContext) -> KernelCall:
        _, _, out = fully_connected_types(layer)
        batch, units = out.shape
        shape: dict[str, Parameter] = {
            "batch": 1,
            "input_height": 1,
            "input_width": batch,
            "input_channels": _depth(layer),
            "output_height": 1,
            "output_width": batch,
            "output_channels": units,
            "kernel_height": 1,
            "kernel_width": 1,
            "stride_height": 1,
            "stride_width": 1,
            "dilation_height": 1,
            "dilation_width": 1,
            "pad_top": 0,
            "pad_left": 0,
        }
        return compact_call(layer, self._plan(layer), _depth(layer), shape, apart=False)

    def _plan(self, layer: LayerContext) -> SmladRequantization:
        return _plan_requantization(layer, common=self.COMMON)


@register
class FullyConnectedCompactPackedDsp(FullyConnectedCompactDsp):
    """Fully connected layer by the function of `Conv2DCompactPackedDsp`, with the batch as pixels."""

    name = "s8_fully_connected__dsp_compact_packed"
    like = FullyConnectedCompactDsp.name
    COMMON = True

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or refuses_packed(layer, self._plan(layer))


# The result is cached, because `supports`, estimates and code ask for it in turn.
@lru_cache(maxsize=8)
def _plan_requantization(layer: LayerContext, *, common: bool) -> SmladRequantization:
    return smlad.plan_requantization(layer, centred_weights(layer), unit_multipliers(layer), common=common)


def _depth(layer: LayerContext) -> int:
    return fully_connected_types(layer)[0].shape[1]


def _pairs(layer: LayerContext) -> int:
    return (_depth(layer) + 1) // 2
