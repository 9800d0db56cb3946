"""int8 fully connected layers for cores with 64-bit products, but without SIMD.

A word has the weights of four units as bytes ``u = w + 128``. Inputs are used as ``v = x + 128``. With 64-bit
sums, two long products replace four of 32 bits:

    first  += v * (u0 + 2^8 * u1 + 2^16 * u2 + 2^24 * u3)
    second += v * (u2 + 2^24 * u1)

Over up to 256 inputs, the sum of each unit fits 24 bits, so that `second` has the separate sums of units 2
and 1. Subtracting them from `first` leaves the sum of unit 0, and 2^24 times the sum of unit 3. Finally,

    sum((w - z) * x) = sum(u * v) - 128 * sum(u) - (128 + z) * sum(x)
"""

from __future__ import annotations

import numpy as np

from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare, describe
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

# Number of units in a word.
LANES = 4
# Inputs per iteration of the inner loop. The remaining inputs are computed one by one.
UNROLL = 4
# Maximum number of inputs, so that sums fit 32 bits.
MAXIMUM_INPUTS = 8192
# Largest number of units for which one word at a time is used, if the last one of two words would be unused.
FEW_UNITS = 32


@register
class FullyConnectedThumb2(Kernel):
    """Fully connected layer of 4 or 8 units at a time, with two long products for each word of 4 weights.

    `weights` has words [outputs / units][inputs][units / 4] of bytes, each weight plus 128. `channel_records`
    proves the form of `channels`, whose biases compensate the offset of the inputs. The module docstring has
    the proof of the sums.
    """

    name = "s8_fully_connected__thumb2_8"
    op = FullyConnected
    superseded_by = frozenset({"dsp"})
    features = frozenset({"thumb2"})
    code = 500
    fields = declare(
        "weights",
        Field("channels", "records, whose biases compensate that inputs are 128 larger"),
        *MATRIX_FIELDS,
        Field("input_factor", "factor of the sum of inputs that compensates the offset of weights"),
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_fully_connected(layer)
        inputs = fully_connected_types(layer)[0].shape[1]
        if reason is None and inputs > MAXIMUM_INPUTS:
            return f"it supports at most {MAXIMUM_INPUTS} inputs; got {inputs}"
        return reason

    def _units(self, layer: LayerContext) -> int:
        """Return the number of units that are computed together."""
        units = fully_connected_types(layer)[2].shape[1]
        return LANES if units <= FEW_UNITS and 0 < units % (2 * LANES) <= LANES else 2 * LANES

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        units = self._units(layer)
        groups = -(-out.shape[1] // units)
        words, rest = units // LANES, x.shape[1] % UNROLL
        blocks = -(-x.shape[1] // 256)
        group = Terms(
            group=1,
            input=x.shape[1] - rest,
            word=(x.shape[1] - rest) * words,
            rest=rest,
            rest_word=rest * words,
            block=blocks,
            block_word=blocks * words,
        )
        row = Terms(row=1, row_input=x.shape[1], output=out.shape[1])
        return Terms(call=1) + x.shape[0] * (row + groups * group)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out = fully_connected_types(layer)
        array = layer.array(1)
        assert array is not None
        form, records, clamp, limits = channel_records(
            layer, centred_weights(layer), unit_multipliers(layer), narrow=False
        )
        lanes = array.astype(np.int16) + 128
        records = records.copy()
        # Biases and sums are modulo 2^32.
        records[:, 0] = (records[:, 0] - 128 * lanes.sum(axis=1, dtype=np.int64)).astype(np.int32)
        units = self._units(layer)
        packed = np.ascontiguousarray(product_sum.interleave_channels(lanes, units).astype(np.uint8))
        spec = (
            ("requantize", form),
            ("clamp", clamp),
            ("units", units),
            ("unroll", UNROLL),
            ("rest", x.shape[1] % UNROLL != 0),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", packed.view("<u4")),
            "channels": Constant("channels", product_sum.pad_records(records, units), record="mf_channel"),
            **matrix_parameters(x, out),
            "input_factor": -128 - weights_zero_point(layer),
        }
        order = f"[outputs / {units}][inputs][{units // 4}], bytes of four units, each plus 128"
        fields = describe(self.fields, weights=order)
        return KernelCall(
            CFunction("fully_connected/thumb2.c.j2", self.name, spec, fields), parameters | limits
        )
