"""int8 fully connected layers for cores that multiply to the lower 32 bits only."""

from __future__ import annotations

import numpy as np

from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import declare, describe
from microfold.kernels.fully_connected.portable import (
    centred_weights,
    fully_connected_types,
    unit_multipliers,
    unsupported_integer_fully_connected,
    weights_zero_point,
)
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.mul_lo import channel_records
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.fully_connected import FullyConnected

# Number of units that are computed together: the registers for sums.
UNITS = 8
# Inputs per iteration of the inner loop. The remaining inputs are computed one by one.
UNROLL = 4


@register
class FullyConnectedThumb1(Kernel):
    """Fully connected layer of up to 8 units at a time, with uint8 weights (int8 plus 128).

    Weights are uint8, because byte loads do not extend the sign. Their offset acts like a weight zero point,
    which the sum of inputs compensates. `weights` is [outputs / units][inputs][units]. `channel_records`
    proves the form of `channels`, with 32-bit products.
    """

    name = "s8_fully_connected__thumb1_8"
    op = FullyConnected
    features = frozenset({"thumb1"})
    code = 550
    fields = declare(
        "weights",
        "channels",
        *MATRIX_FIELDS,
        "weights_zero_point",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_integer_fully_connected(layer)

    def _group(self, layer: LayerContext) -> int:
        return min(fully_connected_types(layer)[2].shape[1], UNITS)

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        group = self._group(layer)
        groups = -(-out.shape[1] // group)
        row = Terms(
            input=x.shape[1],
            group=groups,
            group_input=groups * x.shape[1],
            product=groups * group * x.shape[1],
            output=out.shape[1],
        )
        return Terms(call=1) + x.shape[0] * row

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out = fully_connected_types(layer)
        array = layer.array(1)
        assert array is not None
        form, records, clamp, limits = channel_records(
            layer, centred_weights(layer), unit_multipliers(layer), narrow=True
        )
        group = self._group(layer)
        zero_point = weights_zero_point(layer) + 128
        packed = product_sum.interleave_channels(array, group)
        spec = (
            ("requantize", form),
            ("clamp", clamp),
            ("units", group),
            ("unroll", UNROLL),
            ("rest", x.shape[1] % UNROLL != 0),
            ("weights_zero_point", zero_point != 0),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", (packed.astype(np.int16) + 128).astype(np.uint8)),
            "channels": Constant("channels", product_sum.pad_records(records, group), record="mf_channel"),
            **matrix_parameters(x, out),
        }
        if zero_point:
            parameters |= {"weights_zero_point": zero_point}
        fields = describe(self.fields, weights=f"[outputs / {group}][inputs][{group}], each plus 128")
        return KernelCall(
            CFunction("fully_connected/thumb1.c.j2", self.name, spec, fields), parameters | limits
        )
