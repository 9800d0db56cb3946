"""Hybrid recurrent layers with integer products by DSP instructions or Helium.

Activations are quantised to int16 in the scratch. Four rows of int8 weights at a time are multiplied by them:
the four gates of a unit, four units of a simple layer, or four outputs of a projection. Integer sums are
exact, and all other code is that of the portable kernels. Therefore the results are the same bit for bit.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import SpecValue
from microfold.kernels.conv2d.s16_mve import row_weights
from microfold.kernels.fully_connected.s16_dsp import pack_unit_blocks
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.recurrent.lstm_float import LstmHybrid
from microfold.kernels.recurrent.sequence_rnn import SequenceRnnHybrid

ROWS = 4


class _Grouped(Kernel):
    """Mixin that multiplies four rows at a time; it precedes a portable kernel in the list of bases.

    Class attributes:
        product: estimated instructions per product, including loads.
        block: estimated instructions per four rows, in addition to their products.
        products: instruction set of the products.
    """

    product: ClassVar[float]
    block: ClassVar[float]
    products: ClassVar[str]

    def cost(self, layer: LayerContext) -> float:
        """Estimate the instructions of a call as the portable kernel does, with other costs of products."""
        macs = layer.node.macs()
        rows = sum(
            layer.node.operands[0].type.shape[0] * layer.node.operands[0].type.shape[1] * v.type.shape[0]
            for v in layer.node.operands[1:3]
        )
        saved = macs * self.coefficient(layer, "product")
        return super().cost(layer) - saved + macs * self.product + rows / ROWS * self.block

    def choice(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        return (*super().choice(layer), ("products", self.products))  # type: ignore[misc]

    def rows(self, matrix: Array) -> Array:
        """Return a matrix [rows, inputs] in reading order, padded to blocks of `ROWS`."""
        raise NotImplementedError


class _Dsp(_Grouped):
    """Products by SMLAD; SXTB16 widens weights that `pack_unit_blocks` has packed."""

    features = frozenset({"dsp"})
    superseded_by = frozenset({"mve"})
    product, block, products = 0.9, 25.0, "dsp"

    def rows(self, matrix: Array) -> Array:
        return pack_unit_blocks(matrix, "int8")


class _Mve(_Grouped):
    """Products of eight inputs per instruction, tail-predicated; weights are [rows / 4][vectors][4][8]."""

    features = frozenset({"mve"})
    product, block, products = 0.3, 30.0, "mve"

    def rows(self, matrix: Array) -> Array:
        return row_weights(matrix).array


class _Lstm(LstmHybrid):
    """Hybrid LSTM that computes the four gates of a unit together."""

    def supports(self, layer: LayerContext) -> str | None:
        bias, cell = layer.node.operands[3].type, layer.node.outputs[2].type
        if bias.shape[0] != ROWS * cell.shape[1]:
            return "it needs four gates"
        return super().supports(layer)

    def pack_gates(self, rows: Array, units: int) -> Array:
        by_unit = rows.reshape(ROWS, units, -1).swapaxes(0, 1)
        return self.rows(np.ascontiguousarray(by_unit).reshape(len(rows), -1))

    def pack_projection(self, matrix: Array) -> Array:
        return self.rows(matrix)

    def rows(self, matrix: Array) -> Array:
        raise NotImplementedError


class _SequenceRnn(SequenceRnnHybrid):
    """Simple hybrid recurrent layer that computes four units together."""

    def pack(self, matrix: Array) -> Array:
        return self.rows(matrix)

    def rows(self, matrix: Array) -> Array:
        raise NotImplementedError


@register
class LstmHybridDsp(_Dsp, _Lstm):
    """Hybrid LSTM that computes the four gates of a unit together, by SMLAD."""

    name = "f32_s8w_hybrid_lstm__dsp"


@register
class LstmHybridMve(_Mve, _Lstm):
    """Hybrid LSTM that computes the four gates of a unit together, with Helium."""

    name = "f32_s8w_hybrid_lstm__mve"


@register
class SequenceRnnHybridDsp(_Dsp, _SequenceRnn):
    """Simple hybrid recurrent layer that computes four units together, by SMLAD."""

    name = "f32_s8w_hybrid_sequence_rnn__dsp_4"


@register
class SequenceRnnHybridMve(_Mve, _SequenceRnn):
    """Simple hybrid recurrent layer that computes four units together, with Helium."""

    name = "f32_s8w_hybrid_sequence_rnn__mve_4"
