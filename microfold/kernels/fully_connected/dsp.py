"""Fully connected layers for cores with DSP instructions."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.fully_connected.portable import (
    centred_weights,
    fully_connected_types,
    unit_multipliers,
    unsupported_integer_fully_connected,
    weights_zero_point,
)
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum, smlad
from microfold.kernels.requantize import output_range, output_table
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.fully_connected import FullyConnected


@register
class FullyConnectedDsp(Kernel):
    """Eight units at a time, then two; SXTB16 widens inputs on the fly, SMLAD multiplies them.

    Cores that issue two instructions at a time have their own order of those of eight units.

    `weights` are in paired lanes or int16, see `packing.smlad`, in the order of `block_units`; `channels` are
    records (bias, multiplier, addend, shift), or, where units have one scale, `biases` alone; compiled for
    size, in three bytes each if they fit.
    `plan_smlad_requantization` proves their form, `fits_paired` the packing.
    """

    name = "s8_fully_connected__dsp_8"
    op = FullyConnected
    features = frozenset({"dsp"})
    code = 850
    UNITS = 8
    fields = declare(
        Field("weights", "of four inputs at a time: pairs (0, 2) and (1, 3) of every two units"),
        "channels",
        Field("biases", "what sums start from"),
        Field("multiplier", "of all units"),
        "addend",
        "shift",
        *MATRIX_FIELDS,
        *output_range.LIMIT_FIELDS,
        output_table.TABLE_FIELD,
    )

    def blocks(self, units: int) -> int:
        """How many times units are computed eight at a time."""
        return units // self.UNITS

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_fully_connected(layer, tables=True)
        if reason is None and weights_zero_point(layer):
            return f"its weights must have zero point 0; it is {weights_zero_point(layer)}"
        return reason

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        whole = self.blocks(out.shape[1])
        pairs, steps = -(-(out.shape[1] - whole * self.UNITS) // 2), -(-x.shape[1] // 4)
        row = Terms(row=1, block=whole, block_step=whole * steps, pair=pairs, pair_step=pairs * steps)
        return Terms(call=1) + x.shape[0] * row + output_table.table_terms(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out = fully_connected_types(layer)
        depth, units = x.shape[1], out.shape[1]
        assert out.quant is not None
        matrix = centred_weights(layer)
        plan = smlad.plan_requantization(layer, matrix, unit_multipliers(layer), common=False)
        matrix = np.pad(plan.matrix, ((0, 0), (0, -depth % 4)))
        # Four inputs and two units: 9 cycles and 7 instructions; int16 weights: 10 and 6, in twice the flash.
        packed = "paired" if smlad.fits_paired(plan.matrix, plan.bounds) else "int16"
        lanes = smlad.pair_lanes(matrix, matrix.shape[1])
        words, records = smlad.smlad_constants(packed, lanes, plan.records, plan.left)
        common = bool((plan.records[:, 1:] == plan.records[0, 1:]).all())
        biases = None
        if common and self.UNITS and layer.compiled_for_size:
            biases = narrow_biases(
                plan.records[:, 0].astype(np.int64) << (0 if packed == "paired" else plan.left)
            )
        limits = output_range.output_limits(layer)
        clamp = limits != (-128, 127)
        spec = (
            ("requantize", plan.form.value),
            ("common", common),
            ("narrow", biases is not None),
            ("packing", packed),
            ("rest", depth % 4 != 0),
            ("clamp", clamp),
            *output_table.table_spec(layer.node),
            ("late_loads", layer.target.has("late_loads")),
            ("blocks", self.UNITS > 0),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", block_units(words, self.blocks(units))),
            **_requantization_parameters(records, biases, common=common),
            **matrix_parameters(x, out),
            **output_table.table_parameters(layer.node),
        }
        if clamp:
            parameters |= {"output_minimum": limits[0], "output_maximum": limits[1]}
        return KernelCall(CFunction("fully_connected/dsp.c.j2", self.name, spec, self.fields), parameters)


@register
class FullyConnectedDspPairs(FullyConnectedDsp):
    """Two units at a time, without the assembly for eight: short code, for layers with few products.

    Weights and records are those of `FullyConnectedDsp`, without blocks of eight units.
    """

    name = "s8_fully_connected__dsp_2"
    code = 350
    like = FullyConnectedDsp.name
    UNITS = 0

    def blocks(self, units: int) -> int:
        return 0


def _requantization_parameters(
    records: Array, biases: Constant | None, *, common: bool
) -> dict[str, Parameter]:
    """Layer fields for records that are the same but for the biases (common), or are not.

    Args:
        biases: in the place of those of common records.
    """
    if not common:
        return {"channels": Constant("channels", records, record="mf_channel")}
    _, multiplier, addend, shift = records[0].tolist()
    biases = biases or Constant("biases", np.ascontiguousarray(records[:, 0]))
    return {"biases": biases, "multiplier": multiplier, "addend": addend, "shift": shift}


def narrow_biases(bias: Array) -> Constant | None:
    """Three bytes for each unit, units even, behind a byte of nothing; None if they do not fit.

    Each lies in the upper bytes of a word.

    Args:
        bias: int64 [units].
    """
    if bool((np.abs(bias) >= 1 << 23).any()):
        return None
    words = product_sum.pad_channels(bias, 2).astype("<i4")
    lowest = words.view(np.int8).reshape(-1, 4)[:, :3].reshape(-1)
    return Constant("biases", np.concatenate([np.zeros(1, np.int8), lowest]), alignment=4)


def block_units(words: Array, blocks: int) -> Array:
    """Packed weights in reading order: blocks of four unit pairs, then unit pairs.

    Args:
        words: int32 [unit pairs, pairs of inputs, ...], an even number of pairs of inputs.

    Returns:
        int32: of each block, of each two pairs of inputs, the words of its unit pairs.
    """
    unit_pairs, pairs = words.shape[:2]
    parts = words.reshape(unit_pairs, pairs // 2, words[0, :2].size)
    front = parts[: 4 * blocks].reshape(blocks, 4, *parts.shape[1:]).swapaxes(1, 2)
    return np.concatenate([front.reshape(-1), parts[4 * blocks :].reshape(-1)])
