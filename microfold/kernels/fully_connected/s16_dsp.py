"""Fully connected layers of int16 activations and int8 weights for cores with the DSP extension."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array, DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.conv2d.s16_dsp import Int16DspKernel, join_words, pack_channel_pairs
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.fully_connected.portable import (
    centred_weights,
    fully_connected_types,
    unit_multipliers,
    weights_zero_point,
)
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.finish import OutputStage
from microfold.kernels.requantize.int16_sums import (
    CHUNK,
    Int16Requantization,
    int16_clamping,
    plan_int16_requantization,
)
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.fully_connected import FullyConnected

# Number of units that are computed together.
UNITS = 4
UNROLL = 4  # Pairs of inputs per iteration.


@register
class FullyConnectedInt16Dsp(Int16DspKernel, frozen=True):
    """SMLAD fully connected layer of 4 units at a time. A 64-bit sum adds up 32-bit sums of chunks of inputs.

    `weights` is [outputs / 4][pairs], of int8 or int16, see `pack_unit_blocks`. `plan_int16_requantization`
    proves the form of the records, and whether sums need 64 bits.
    """

    name = "s16_fully_connected__dsp_4"
    op = FullyConnected
    features = frozenset({"dsp"})
    fields = declare(
        Field("weights", "[outputs / 4][inputs / 2], two inputs of four units"),
        "channels",
        *MATRIX_FIELDS,
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_int16_fully_connected(layer)

    def terms(self, layer: LayerContext) -> Terms:
        plan = int16_plan(layer)
        assert plan is not None
        pairs = -(-fully_connected_types(layer)[0].shape[1] // 2)
        chunks = -(-pairs // (CHUNK // 2)) if plan.long else 1
        return self.product_terms(layer, chunks, plan.cost)

    def product_terms(self, layer: LayerContext, chunks: int, finish: str) -> Terms:
        """Count the code parts that compute sums and outputs.

        Args:
            chunks: chunks of a sum.
            finish: kind of the computation of an output from a sum.
        """
        x, _, out = fully_connected_types(layer)
        pairs = -(-x.shape[1] // 2)
        block = Terms(
            {
                "block": 1,
                f"{self.packing}_pair": pairs,
                "rest": pairs % UNROLL,
                "chunk": chunks,
                f"finish_{finish}": UNITS,
            }
        )
        return Terms(call=1) + x.shape[0] * (Terms(row=1) + -(-out.shape[1] // UNITS) * block)

    def finish(self, layer: LayerContext) -> OutputStage:
        """Return the finish, which computes outputs from sums."""
        plan = int16_plan(layer)
        assert plan is not None
        clamp_kind, limits = int16_clamping(layer)
        spec = (("requantize", plan.form), ("long", plan.long), ("clamp_kind", clamp_kind))
        records = Constant("channels", product_sum.pad_records(plan.records, UNITS), record="mf_channel")
        return OutputStage(spec, {"channels": records, **limits})

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out = fully_connected_types(layer)
        finish = self.finish(layer)
        matrix = layer.array(1)
        assert matrix is not None
        spec = (
            ("packing", self.packing),
            *finish.spec,
            ("odd", x.shape[1] % 2 == 1),
            ("tail", out.shape[1] % UNITS != 0),
            ("late_loads", layer.target.has("late_loads")),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", pack_unit_blocks(matrix, self.packing)),
            **finish.parameters,
            **matrix_parameters(x, out),
        }
        return KernelCall(CFunction("fully_connected/s16_dsp.c.j2", self.name, spec, self.fields), parameters)


def unsupported_int16_fully_connected(layer: LayerContext) -> str | None:
    """Return the reason why no int16 fully connected kernel supports the layer, or None."""
    reason = product_sum.unsupported_constants(layer, DType.INT16, DType.INT8)
    if reason is None and weights_zero_point(layer):
        return "weights must have zero point 0"
    if reason is None and int16_plan(layer) is None:
        return "a bias or a multiplier is too large"
    return reason


def int16_plan(layer: LayerContext) -> Int16Requantization | None:
    """Return the requantisation of an int16 layer; None if a bias or a multiplier does not fit."""
    multipliers = unit_multipliers(layer)
    return plan_int16_requantization(layer, centred_weights(layer), multipliers)


def pack_unit_blocks(matrix: Array, packing: str) -> Array:
    """Pack weights in reading order: for each pair of inputs of 4 units, the words of units 0, 1, then 2, 3.

    Args:
        matrix: int8 [units, K].
        packing: ``int8``, ``int16`` or ``int4``, see `pack_channel_pairs`.

    Returns:
        int32 [units / 4, pairs, words].
    """
    padded = np.pad(product_sum.pad_channels(matrix, UNITS), ((0, 0), (0, matrix.shape[1] % 2)))
    words = pack_channel_pairs(padded, "int8" if packing == "int4" else packing)
    blocks = words.reshape(-1, 2, *words.shape[1:]).swapaxes(1, 2)
    rows = np.ascontiguousarray(blocks).reshape(*blocks.shape[:2], -1)
    return join_words(rows.reshape(len(rows), -1, 1)) if packing == "int4" else rows
