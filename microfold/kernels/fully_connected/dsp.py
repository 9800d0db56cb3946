"""int8 fully connected layers for cores with the DSP extension."""

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
    """SMLAD fully connected layer of 8 units at a time, then 2. SXTB16 widens inputs on the fly.

    Cores with late loads have their own instruction order for 8 units.

    `weights` is paired lanes or int16, see `packing.smlad`, in the order of `block_units`. `channels` has
    records (bias, multiplier, addend, shift). If all units have the same scale, `biases` replaces it, with
    3 bytes for each bias if they fit and the code is compiled for size. `plan_smlad_requantization` proves
    the form, `fits_paired` the packing.
    """

    name = "s8_fully_connected__dsp_8"
    op = FullyConnected
    features = frozenset({"dsp"})
    code = 850
    UNITS = 8
    fields = declare(
        Field("weights", "for each four inputs, pairs (0, 2) and (1, 3) of each two units"),
        "channels",
        Field("biases", "initial values of sums"),
        Field("multiplier", "multiplier of all units"),
        "addend",
        "shift",
        *MATRIX_FIELDS,
        *output_range.LIMIT_FIELDS,
        output_table.TABLE_FIELD,
    )

    def blocks(self, units: int) -> int:
        """Return the number of blocks of 8 units."""
        return units // self.UNITS

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_fully_connected(layer, tables=True)
        if reason is None and weights_zero_point(layer):
            return f"its weights must have zero point 0; got {weights_zero_point(layer)}"
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
        # Paired weights of 4 inputs and 2 units need 9 cycles and 7 instructions. int16 weights need 10 and
        # 6, and twice the flash.
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
    """SMLAD fully connected layer of 2 units at a time, with short code for layers with few products.

    It has the weights and records of `FullyConnectedDsp`, without blocks of 8 units.
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
    """Return the layer fields of the records.

    Args:
        biases: packed biases that common records use instead of int32 biases.
        common: whether all records are equal except for their biases.
    """
    if not common:
        return {"channels": Constant("channels", records, record="mf_channel")}
    _, multiplier, addend, shift = records[0].tolist()
    biases = biases or Constant("biases", np.ascontiguousarray(records[:, 0]))
    return {"biases": biases, "multiplier": multiplier, "addend": addend, "shift": shift}


def narrow_biases(bias: Array) -> Constant | None:
    """Return biases of 3 bytes each, for an even number of units; None if they do not fit.

    An unused byte comes first, so that a word that starts one byte earlier has the bias in its upper bytes.

    Args:
        bias: int64 [units].
    """
    if bool((np.abs(bias) >= 1 << 23).any()):
        return None
    words = product_sum.pad_channels(bias, 2).astype("<i4")
    lowest = words.view(np.int8).reshape(-1, 4)[:, :3].reshape(-1)
    return Constant("biases", np.concatenate([np.zeros(1, np.int8), lowest]), alignment=4)


def block_units(words: Array, blocks: int) -> Array:
    """Return packed weights in reading order: blocks of 4 pairs of units, then the remaining pairs of units.

    Args:
        words: int32 [pairs of units, pairs of inputs, ...], with an even number of pairs of inputs.
        blocks: number of blocks.

    Returns:
        int32: for each block, and for each two pairs of inputs, the words of its pairs of units.
    """
    unit_pairs, pairs = words.shape[:2]
    parts = words.reshape(unit_pairs, pairs // 2, words[0, :2].size)
    front = parts[: 4 * blocks].reshape(blocks, 4, *parts.shape[1:]).swapaxes(1, 2)
    return np.concatenate([front.reshape(-1), parts[4 * blocks :].reshape(-1)])
