"""LSTM cells of int8 and int16 with Helium."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from microfold.ir.types import Array, DType
from microfold.kernels.call import KernelCall
from microfold.kernels.conv2d.s16_mve import LANES, row_weights
from microfold.kernels.cost.terms import Terms
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import mve, product_sum
from microfold.kernels.recurrent.gates import GateMatrix, plan_int16
from microfold.kernels.recurrent.lstm import IntegerLstm, Products, step_count
from microfold.ops.recurrent.lstm import Lstm
from microfold.ops.recurrent.lstm_integer import cell_parameters


class _Mve(IntegerLstm):
    """Integer LSTM of four units at a time, one gate after the other; then the four cells.

    Weights are in vectors of inputs, [units / 4][4 gates][vectors][4 units][inputs in a vector], padded with
    zeros after rows and units. Gather loads read the table. Multipliers after the gates are below one half,
    as the form PLAIN of `packing.mve` requires, which has the proof.

    Class attributes:
        lanes: inputs per vector.
    """

    features = frozenset({"mve"})
    code = 900
    template = "recurrent/lstm_mve.c.j2"
    lanes: ClassVar[int]

    def refuses(self, layer: LayerContext) -> str | None:
        if any(matrix.overflows for matrix in self.matrices(layer)):
            return "accumulators might overflow"
        hidden, cell = (layer.node.operands[i].type.quant for i in (4, 5))
        assert hidden is not None and cell is not None and isinstance(layer.node.op, Lstm)
        known = cell_parameters(hidden, cell, layer.node.op.cell_clip)
        if max(known.input.shift, known.hidden.shift) >= 0:
            return "it needs multipliers below one half"
        return None

    def terms(self, layer: LayerContext) -> Terms:
        vectors = sum(-(-matrix.weights.shape[2] // self.lanes) for matrix in self.matrices(layer))
        steps = step_count(layer)
        blocks = steps * -(-layer.node.operands[5].type.shape[1] // mve.BLOCK)
        return Terms(call=1, step=steps, block=blocks, vector=4 * blocks * vectors)


@register
class LstmInt8Mve(_Mve):
    """LSTM of int8, 16 products per instruction; gate multipliers from one half on need the form GENERAL."""

    name = "s8_lstm__mve_4"
    dtype = DType.INT8
    lanes = mve.LANES

    def products(self, layer: LayerContext) -> Products:
        first, second = (
            (*_packed(matrix, mve.block_weights), _records(matrix)) for matrix in self.matrices(layer)
        )
        plain = max(first[2][:, 3].max(), second[2][:, 3].max()) < 0
        form = mve.MveForm.PLAIN if plain else mve.MveForm.GENERAL
        return Products((("type", "int8_t"), ("requantize", form.value)), (first, second))


@register
class LstmInt16Mve(_Mve):
    """LSTM of int16, 8 products per instruction, with 32-bit sums; 16-bit multipliers of gates round once.

    `int16_sums` has the proof. VRSHL applies its addend and shift.
    """

    name = "s16_lstm__mve_4"
    dtype = DType.INT16
    lanes = LANES

    def refuses(self, layer: LayerContext) -> str | None:
        return super().refuses(layer) or (
            "a multiplier is too large or too small"
            if plan_int16(self.matrices(layer))[0] != "once"
            else None
        )

    def lower(self, layer: LayerContext) -> KernelCall:
        call = super().lower(layer)
        parameters = {name: value for name, value in call.parameters.items() if name != "output_zero_point"}
        return replace(call, parameters=parameters)

    def products(self, layer: LayerContext) -> Products:
        matrices = self.matrices(layer)
        form, records = plan_int16(matrices)
        first, second = (
            (*_packed(matrix, lambda rows: row_weights(rows).array), record)
            for matrix, record in zip(matrices, records, strict=True)
        )
        return Products((("type", "int16_t"), ("requantize", form)), (first, second))


def _packed(matrix: GateMatrix, pack: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Return weights and biases in blocks of units and gates.

    Args:
        pack: converts weights [rows, inputs] to blocks of four rows.
    """
    padded = product_sum.pad_channels(matrix.weights, mve.BLOCK)
    blocks = padded.reshape(-1, mve.BLOCK, *padded.shape[1:]).swapaxes(1, 2)
    weights = pack(blocks.reshape(-1, padded.shape[2]))
    starts = product_sum.pad_channels(matrix.biases, mve.BLOCK).reshape(-1, mve.BLOCK, 4).swapaxes(1, 2)
    return weights, np.ascontiguousarray(starts, np.int32)


def _records(matrix: GateMatrix) -> Array:
    """Return the records of the gates of an int8 cell."""
    assert matrix.multipliers is not None
    mantissas, shifts = matrix.multipliers
    none = np.zeros_like(mantissas)
    return np.stack([none, mantissas, none, shifts], axis=1).astype(np.int32)
