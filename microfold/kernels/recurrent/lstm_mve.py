"""int8 LSTM cells for Helium."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array, DType
from microfold.kernels.cost.terms import Terms
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import mve, product_sum
from microfold.kernels.recurrent.gates import GateMatrix
from microfold.kernels.recurrent.lstm import IntegerLstm, Products, step_count
from microfold.ops.recurrent.lstm import Lstm
from microfold.ops.recurrent.lstm_integer import cell_parameters


@register
class LstmInt8Mve(IntegerLstm):
    """Four units at a time, one gate after the other, 16 products an instruction; then the four cells.

    Weights are [units / 4][4 gates][vectors][4][16], with zeros behind rows and units; table entries are
    gathered. Multipliers behind the gates are below one half, for the form PLAIN of `packing.mve`, which has
    the proof; so are those of the gates, or they take its form GENERAL.
    """

    name = "s8_lstm__mve_4"
    features = frozenset({"mve"})
    dtype = DType.INT8
    code = 900
    template = "recurrent/lstm_mve.c.j2"

    def refuses(self, layer: LayerContext) -> str | None:
        matrices = self.matrices(layer)
        if any(matrix.overflows for matrix in matrices):
            return "accumulators might overflow"
        hidden, cell = (layer.node.operands[i].type.quant for i in (4, 5))
        assert hidden is not None and cell is not None and isinstance(layer.node.op, Lstm)
        known = cell_parameters(hidden, cell, layer.node.op.cell_clip)
        if max(known.input.shift, known.hidden.shift) >= 0:
            return "it needs multipliers below one half"
        return None

    def terms(self, layer: LayerContext) -> Terms:
        vectors = sum(-(-matrix.weights.shape[2] // mve.LANES) for matrix in self.matrices(layer))
        steps = step_count(layer)
        blocks = steps * -(-layer.node.operands[5].type.shape[1] // mve.BLOCK)
        return Terms(call=1, step=steps, block=blocks, vector=4 * blocks * vectors)

    def products(self, layer: LayerContext) -> Products:
        first, second = (_packed(matrix) for matrix in self.matrices(layer))
        plain = max(first[2][:, 3].max(), second[2][:, 3].max()) < 0
        form = mve.MveForm.PLAIN if plain else mve.MveForm.GENERAL
        return Products((("requantize", form.value),), (first, second))


def _packed(matrix: GateMatrix) -> tuple[Array, Array, Array]:
    """Weights and biases by blocks of units and gates, and the records of the gates."""
    assert matrix.multipliers is not None
    padded = product_sum.pad_channels(matrix.weights, mve.BLOCK)
    blocks = padded.reshape(-1, mve.BLOCK, *padded.shape[1:]).swapaxes(1, 2)
    weights = mve.block_weights(blocks.reshape(-1, padded.shape[2]))
    starts = product_sum.pad_channels(matrix.biases, mve.BLOCK).reshape(-1, mve.BLOCK, 4).swapaxes(1, 2)
    mantissas, shifts = matrix.multipliers
    none = np.zeros_like(mantissas)
    records = np.stack([none, mantissas, none, shifts], axis=1).astype(np.int32)
    return weights, np.ascontiguousarray(starts, np.int32), records
