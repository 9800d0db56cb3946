"""LSTM cells of int8 with all optional parts, for cores with DSP instructions."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import SpecValue
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum, smlad
from microfold.kernels.recurrent.lstm_8x8_16 import Lstm8x8To16Kernel


@register
class Lstm8x8To16Dsp(Lstm8x8To16Kernel):
    """LSTM in which SXTB16 widens inputs on the fly, and SMLAD multiplies them by two rows after each other.

    Weights are in paired lanes or int16, see `packing.smlad`; the words of all rows follow for each four
    inputs. `fits_paired` proves the packing. A cell with three gates computes two units together.
    """

    name = "s8_lstm_8x8_16__dsp"
    products = "dsp"
    features = frozenset({"dsp"})

    def default_coefficient(self, term: str) -> float:
        return 1.2 if term == "product" else super().default_coefficient(term)

    def together(self, count: int) -> int:
        return 1 + count % 2

    def choice(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        matrices = self.all_matrices(layer)
        return (
            ("packing", self._packing(layer)),
            ("rest", any(matrix.weights.shape[2] % 4 for matrix in matrices)),
        )

    def packed(self, layer: LayerContext, rows: Array, starts: Array) -> tuple[Array, Array]:
        blocks, count, inputs = rows.shape
        padded = np.pad(rows.reshape(-1, inputs), ((0, 0), (0, -inputs % 4)))
        lanes = smlad.pair_lanes(padded, padded.shape[1])
        flat = starts.reshape(-1).astype(np.int32)
        if self._packing(layer) == "paired":
            words, flat = smlad.pack_paired(lanes), smlad.paired_biases(flat)
        else:
            words = smlad.pack_int16(lanes)
        order = words.reshape(blocks, count // 2, padded.shape[1] // 4, -1).swapaxes(1, 2)
        return np.ascontiguousarray(order).reshape(blocks, -1), flat.reshape(blocks, count)

    def _packing(self, layer: LayerContext) -> str:
        """Return ``paired`` if all matrices fit that packing, else ``int16``."""
        count = len(self.gates(layer))
        rows = count * self.together(count)
        for matrix in self.all_matrices(layer):
            parts = (
                product_sum.pad_channels(part.reshape(-1, *part.shape[2:]), rows)
                for part in (matrix.weights, matrix.low, matrix.high)
            )
            weights, low, high = parts
            if not smlad.fits_paired(weights, (low, high)):
                return "int16"
        return "paired"
