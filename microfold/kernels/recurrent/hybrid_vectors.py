"""Hybrid recurrent layers whose products are those of int16 by DSP instructions or Helium.

Four rows of int8 weights at a time are multiplied with activations that are quantised in the scratch: the
gates of a unit, four units of a simple layer, four outputs of a projection. Sums of integers are exact, and
all else is the portable kernels' code: so are the bits.
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
    """How four rows are multiplied; before a portable kernel in the list of bases.

    Class attributes:
        product: estimated instructions of one, loads included.
        block: those of four rows beside their products.
        products: the instruction set.
    """

    product: ClassVar[float]
    block: ClassVar[float]
    products: ClassVar[str]

    def cost(self, layer: LayerContext) -> float:
        """The portable kernel's, but for its products."""
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
        """A matrix [rows, inputs] as the code reads it, padded to blocks of `ROWS`."""
        raise NotImplementedError


class _Dsp(_Grouped):
    """Weights in the order of `pack_unit_blocks`, which SXTB16 widens; SMLAD multiplies pairs."""

    features = frozenset({"dsp"})
    superseded_by = frozenset({"mve"})
    product, block, products = 0.9, 25.0, "dsp"

    def rows(self, matrix: Array) -> Array:
        return pack_unit_blocks(matrix, "int8")


class _Mve(_Grouped):
    """Weights are [rows / 4][vectors][4][8]; eight products an instruction, in a tail-predicated loop."""

    features = frozenset({"mve"})
    product, block, products = 0.3, 30.0, "mve"

    def rows(self, matrix: Array) -> Array:
        return row_weights(matrix).array


class _Lstm(LstmHybrid):
    """The four gates of a unit together."""

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
    """Four units together."""

    def pack(self, matrix: Array) -> Array:
        return self.rows(matrix)

    def rows(self, matrix: Array) -> Array:
        raise NotImplementedError


@register
class LstmHybridDsp(_Dsp, _Lstm):
    """The four gates of a unit together, by SMLAD."""

    name = "f32_s8w_hybrid_lstm__dsp"


@register
class LstmHybridMve(_Mve, _Lstm):
    """The four gates of a unit together, by Helium."""

    name = "f32_s8w_hybrid_lstm__mve"


@register
class SequenceRnnHybridDsp(_Dsp, _SequenceRnn):
    """Four units together, by SMLAD."""

    name = "f32_s8w_hybrid_sequence_rnn__dsp_4"


@register
class SequenceRnnHybridMve(_Mve, _SequenceRnn):
    """Four units together, by Helium."""

    name = "f32_s8w_hybrid_sequence_rnn__mve_4"
