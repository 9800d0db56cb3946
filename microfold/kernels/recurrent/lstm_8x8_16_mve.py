"""LSTM cells of int8 with all optional parts, with Helium."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.cost.terms import Terms
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import mve, product_sum
from microfold.kernels.recurrent.gates import GateMatrix
from microfold.kernels.recurrent.lstm import step_count
from microfold.kernels.recurrent.lstm_8x8_16 import NORM, PEEPHOLE, Lstm8x8To16Kernel
from microfold.ops.recurrent.lstm_8x8_16 import Lstm8x8To16


@register
class Lstm8x8To16Mve(Lstm8x8To16Kernel):
    """LSTM of four units at a time, one gate after the other, 16 products per instruction; then four cells.

    Weights are [units / 4][gates][vectors][4][16], padded with zeros after rows and units. All requantisation
    has the form GENERAL of `packing.mve`. Four units must round ties of peephole products in the same way.
    """

    name = "s8_lstm_8x8_16__mve_4"
    products = "mve"
    features = frozenset({"mve"})
    template = "recurrent/lstm_8x8_16_mve.c.j2"

    def supports(self, layer: LayerContext) -> str | None:
        assert isinstance(layer.node.op, Lstm8x8To16)
        if layer.present(NORM):
            return "it does not support layer normalisation"
        units = layer.node.outputs[2].type.shape[1]
        if layer.node.op.rounded_up % mve.BLOCK and layer.node.op.rounded_up < units:
            return f"ties must be rounded up in blocks of {mve.BLOCK} units"
        return super().supports(layer)

    def terms(self, layer: LayerContext) -> Terms:
        matrices, projection = self.matrices(layer), self.projection(layer)
        steps, gates = step_count(layer), matrices[0].weights.shape[1]
        blocks = steps * -(-matrices[0].weights.shape[0] // mve.BLOCK)
        vectors = sum(-(-matrix.weights.shape[2] // mve.LANES) for matrix in matrices)
        outputs = steps * -(-projection.weights.shape[0] // mve.BLOCK) if projection is not None else 0
        own = outputs * -(-projection.weights.shape[2] // mve.LANES) if projection is not None else 0
        return Terms(
            call=1,
            step=steps,
            block=blocks,
            gate=gates * blocks,
            peephole=blocks * (gates - 1) * layer.present(PEEPHOLE),
            output=outputs,
            vector=gates * blocks * vectors + own,
        )

    def default_coefficient(self, term: str) -> float:
        return {"block": 200.0, "gate": 130.0, "peephole": 20.0, "vector": 10.0}.get(term, 40.0)

    def together(self, count: int) -> int:
        return mve.BLOCK

    def arranged(self, matrix: GateMatrix) -> tuple[Array, Array]:
        weights, starts = (
            product_sum.pad_channels(part, mve.BLOCK).reshape(-1, mve.BLOCK, *part.shape[1:]).swapaxes(1, 2)
            for part in (matrix.weights, matrix.biases)
        )
        return weights.reshape(-1, mve.BLOCK, weights.shape[3]), starts.reshape(-1, mve.BLOCK)

    def requantization(self, matrices: Sequence[GateMatrix]) -> tuple[str, list[Array]]:
        return mve.MveForm.GENERAL.value, [_general(matrix, 0) for matrix in matrices]

    def projection_requantization(self, matrix: GateMatrix, zero_point: int, low: int) -> tuple[str, Array]:
        return mve.MveForm.GENERAL.value, _general(matrix, zero_point)

    def projection_rows(self, count: int) -> int:
        return mve.BLOCK

    def peephole(self, array: Array) -> Array:
        return array

    def packed(self, layer: LayerContext, rows: Array, starts: Array) -> tuple[Array, Array]:
        return mve.block_weights(rows.reshape(-1, rows.shape[2])), starts


def _general(matrix: GateMatrix, addend: int) -> Array:
    """Return records of the general form of requantisation, one for each gate."""
    assert matrix.multipliers is not None
    mantissas, shifts = matrix.multipliers
    none = np.zeros_like(mantissas)
    return np.stack([none, mantissas, none + addend, shifts], axis=1).astype(np.int32)
