"""LSTM cells of int8 and int16 for cores with DSP instructions."""

from __future__ import annotations

import numpy as np

from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import Array, DType
from microfold.kernels.call import Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fully_connected.s16_dsp import pack_unit_blocks
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import smlad
from microfold.kernels.recurrent.gates import GATES, GateMatrix, plan_int16, plan_smlad
from microfold.kernels.recurrent.lstm import (
    SMALLEST_INT16_SHIFT,
    IntegerLstm,
    Products,
    step_count,
    unit_count,
)
from microfold.kernels.requantize.int16_sums import CHUNK
from microfold.ops.recurrent.lstm import Lstm
from microfold.ops.recurrent.lstm_integer import cell_parameters


class _Dsp(IntegerLstm):
    """Integer LSTM with one SMMLAR for each multiplication after the gates.

    `elementwise.s16_dsp` has the proof, and `refuses` checks its conditions.
    """

    features = frozenset({"dsp"})
    code = 800

    def refuses(self, layer: LayerContext) -> str | None:
        hidden, cell = (layer.node.operands[i].type.quant for i in (4, 5))
        assert hidden is not None and cell is not None and isinstance(layer.node.op, Lstm)
        known = cell_parameters(hidden, cell, layer.node.op.cell_clip)
        if not all(-30 <= multiplier.shift < 0 for multiplier in (known.input, known.hidden)):
            return "it needs multipliers below one half"
        return None

    def multiplication(self, multiplier: Multiplier, name: str) -> dict[str, Parameter]:
        return {
            f"{name}_multiplier": multiplier.mantissa,
            f"{name}_rounding": 1 << (-multiplier.shift - 1),
            f"{name}_shift": -multiplier.shift,
        }


@register
class LstmInt8Dsp(_Dsp):
    """LSTM of int8, all four gates of a unit together; SXTB16 widens inputs, SMLAD multiplies them.

    Weights are in paired lanes or int16, see `packing.smlad`, in the order of `pack_gates`. Inputs are padded
    with zeros to a multiple of four. `fits_paired` proves the packing. If `plan_smlad` finds a common shift,
    all products are requantised with it: an immediate of an instruction that also saturates. The left shifts
    that equalise the gates are merged with shifts that the sums need anyway.
    """

    name = "s8_lstm__dsp_4"
    dtype = DType.INT8

    def refuses(self, layer: LayerContext) -> str | None:
        if any(matrix.overflows for matrix in self.matrices(layer)):
            return "accumulators might overflow"
        return super().refuses(layer)

    def terms(self, layer: LayerContext) -> Terms:
        matrices = self.matrices(layer)
        depths = [matrix.weights.shape[2] for matrix in matrices]
        units = unit_count(layer)
        blocks = units * sum(-(-depth // 4) for depth in depths)
        return Terms(
            {
                "call": 1,
                "step": step_count(layer),
                "unit": units,
                "unshifted": units * (not plan_smlad(matrices).shift),
                f"{_packing(matrices)}_block": blocks,
                "rest": units * sum(depth % 4 for depth in depths),
            }
        )

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


@register
class LstmInt16Dsp(_Dsp):
    """LSTM of int16 that computes the gates of a unit together; SXTB16 widens weight pairs, SMLAD multiplies.

    Weights are in the order of `pack_unit_blocks`. The number of inputs is small enough for 32-bit sums of
    products. With biases, `plan_int16` selects a form with the width that the sums need.
    """

    name = "s16_lstm__dsp_4"
    dtype = DType.INT16

    def refuses(self, layer: LayerContext) -> str | None:
        matrices = self.matrices(layer)
        if (depth := max(matrix.weights.shape[2] for matrix in matrices)) > CHUNK:
            return f"it needs at most {CHUNK} inputs and units; got {depth}"
        if any(m.multipliers is not None and m.multipliers[1].min() < SMALLEST_INT16_SHIFT for m in matrices):
            return "a multiplier is too small"
        return super().refuses(layer)

    def terms(self, layer: LayerContext) -> Terms:
        matrices, units = self.matrices(layer), unit_count(layer)
        pairs = sum(-(-matrix.weights.shape[2] // 2) for matrix in matrices)
        twice = plan_int16(matrices)[0] != "once"
        return Terms(call=1, step=step_count(layer), unit=units, twice=units * twice, pair=units * pairs)

    def products(self, layer: LayerContext) -> Products:
        matrices = self.matrices(layer)
        form, records = plan_int16(matrices)
        start = np.int32 if form == "once" else np.int64
        first, second = (
            (
                pack_unit_blocks(matrix.weights.reshape(-1, matrix.weights.shape[2]), "int8"),
                matrix.biases.astype(start),
                record,
            )
            for matrix, record in zip(matrices, records, strict=True)
        )
        choice = (
            ("type", "int16_t"),
            ("products", "dsp_s16"),
            ("requantize", form),
            ("accumulator", "int32_t" if form == "once" else "int64_t"),
        )
        return Products(choice, (first, second))


def _packing(matrices: tuple[GateMatrix, GateMatrix]) -> str:
    """Return ``paired`` if both matrices fit that packing, else ``int16``."""
    fits = all(
        smlad.fits_paired(m.weights.reshape(-1, m.weights.shape[2]), (m.low.reshape(-1), m.high.reshape(-1)))
        for m in matrices
    )
    return "paired" if fits else "int16"


def pack_gates(matrix: GateMatrix, packing: str) -> tuple[Array, Array]:
    """Return weights in reading order, and initial sums, int32 [units, 4].

    For each unit and each four inputs, the words of gates i and f come first, then the words of g and o.
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
