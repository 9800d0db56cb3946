"""int8 LSTM cells for cores with DSP instructions."""

from __future__ import annotations

import numpy as np

from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import Array, DType
from microfold.kernels.call import Parameter
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import smlad
from microfold.kernels.recurrent.gates import GATES, GateMatrix, plan_smlad
from microfold.kernels.recurrent.lstm import IntegerLstm, Products, step_count, unit_count
from microfold.ops.recurrent.lstm import Lstm
from microfold.ops.recurrent.lstm_integer import cell_parameters


@register
class LstmInt8Dsp(IntegerLstm):
    """The four gates of a unit together; SXTB16 widens inputs on the fly, SMLAD multiplies them.

    Weights are in paired lanes or int16, see `packing.smlad`, in the order of `pack_gates`; inputs are
    padded with zeros to a multiple of four. `fits_paired` proves the packing. All products are requantised
    with one shift, an immediate that also saturates them, if `plan_smlad` finds one: gates' own shifts are in
    those that sums need anyway. Multiplications behind the gates are one SMMLAR each, see
    `elementwise.s16_dsp` for the proof; `refuses` checks that it holds.
    """

    name = "s8_lstm__dsp_4"
    features = frozenset({"dsp"})
    dtype = DType.INT8
    code = 800

    def refuses(self, layer: LayerContext) -> str | None:
        if any(matrix.overflows for matrix in self.matrices(layer)):
            return "accumulators might overflow"
        hidden, cell = (layer.node.operands[i].type.quant for i in (4, 5))
        assert hidden is not None and cell is not None and isinstance(layer.node.op, Lstm)
        known = cell_parameters(hidden, cell, layer.node.op.cell_clip)
        if not all(-30 <= multiplier.shift < 0 for multiplier in (known.input, known.hidden)):
            return "it needs multipliers below one half"
        return None

    def cost(self, layer: LayerContext) -> float:
        paired = _packing(self.matrices(layer)) == "paired"
        blocks = sum(-(-matrix.weights.shape[2] // 4) for matrix in self.matrices(layer))
        unit = (17.2 if paired else 15.2) * blocks + 240
        return unit * unit_count(layer) + 60 * step_count(layer)

    def multiplication(self, multiplier: Multiplier, name: str) -> dict[str, Parameter]:
        return {
            f"{name}_multiplier": multiplier.mantissa,
            f"{name}_rounding": 1 << (-multiplier.shift - 1),
            f"{name}_shift": -multiplier.shift,
        }

    def products(self, layer: LayerContext) -> Products:
        matrices = self.matrices(layer)
        packing = _packing(matrices)
        plan = plan_smlad(matrices)
        depths = [matrix.weights.shape[2] for matrix in matrices]
        choice = (
            ("type", "int8_t"),
            ("products", "dsp"),
            ("requantize", "general"),
            ("accumulator", "int32_t"),
            ("packing", packing),
            ("fours", any(depth & 4 for depth in depths)),
            ("rest", any(depth % 4 for depth in depths)),
            ("shift", plan.shift),
            ("input_lefts", tuple(plan.left[:GATES].tolist())),
            ("hidden_lefts", tuple(plan.left[GATES:].tolist())),
        )
        records = np.split(plan.records, 2)
        first, second = ((*pack_gates(m, packing), r) for m, r in zip(matrices, records, strict=True))
        return Products(choice, (first, second))


def _packing(matrices: tuple[GateMatrix, GateMatrix]) -> str:
    """``paired`` if both matrices can be packed so, else ``int16``."""
    fits = all(
        smlad.fits_paired(m.weights.reshape(-1, m.weights.shape[2]), (m.low.reshape(-1), m.high.reshape(-1)))
        for m in matrices
    )
    return "paired" if fits else "int16"


def pack_gates(matrix: GateMatrix, packing: str) -> tuple[Array, Array]:
    """Weights in reading order, and what the sums begin with, int32 [units, 4].

    Of each unit, of each four inputs: the words of gates i and f, then those of g and o.
    """
    units, _, inputs = matrix.weights.shape
    rows = np.pad(matrix.weights.reshape(units * GATES, inputs), ((0, 0), (0, -inputs % 4)))
    lanes = smlad.pair_lanes(rows, rows.shape[1])
    starts = matrix.biases.reshape(-1).astype(np.int32)
    if packing == "paired":
        words, starts = smlad.pack_paired(lanes), smlad.paired_biases(starts)
    else:
        words = smlad.pack_int16(lanes)
    blocks = words.reshape(units, GATES // 2, rows.shape[1] // 4, -1).swapaxes(1, 2)
    return np.ascontiguousarray(blocks).reshape(units, -1), starts.reshape(units, GATES)
