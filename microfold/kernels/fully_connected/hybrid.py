"""Hybrid fully connected layers: as those of int16 activations up to the sums, which end as floats.

`dynamic_finish` has what makes floats of sums. Activations are within [-255, 255], so that sums have 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from microfold.ir.types import Array
from microfold.kernels.call import Constant, KernelCall
from microfold.kernels.conv2d.s16_mve import nibble_rows, sum_terms
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fully_connected.portable import UnitGroups, fully_connected_types
from microfold.kernels.fully_connected.s16_dsp import FullyConnectedInt16Dsp
from microfold.kernels.fully_connected.s16_mve import FullyConnectedInt16Mve
from microfold.kernels.kernel import Kernel, Trade, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize.dynamic_scale import (
    SUMS,
    dynamic_finish,
    scale_cost,
    unsupported_hybrid,
    unsupported_int4,
    with_scale_fields,
)
from microfold.kernels.requantize.finish import Finish
from microfold.ops.fully_connected.hybrid_fully_connected import HybridFullyConnected
from microfold.support.frozen import frozen

# What makes an output of a sum stands in `scale_cost`; these are stores.
_STORES = {f"finish_{SUMS}": 3.0, f"block_{SUMS}": 14.0, "int4_pair": 13.0}


class _HybridFullyConnected(Kernel):
    """What all of them share; before a kernel of int16 in the list of bases."""

    op = HybridFullyConnected

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_hybrid(layer)

    def cost(self, layer: LayerContext) -> float:
        return super().cost(layer) + scale_cost(layer)

    def guess(self, term: str) -> float:
        return _STORES.get(term, super().guess(term))


@register
class HybridFullyConnectedPortable(_HybridFullyConnected, UnitGroups):
    """Up to four units at a time; `weights` are those of `UnitGroups`."""

    name = "s16_f32_hybrid_fully_connected__c_4"
    like = "s16_fully_connected__c_4"
    fields = with_scale_fields(UnitGroups.fields)

    def lower(self, layer: LayerContext) -> KernelCall:
        return self.call(layer, "fully_connected/hybrid.c.j2", dynamic_finish(layer))


@register
@frozen(eq=False)
class HybridFullyConnectedDsp(_HybridFullyConnected, FullyConnectedInt16Dsp):
    """Four units at a time, by SMLAD; `weights` are those of `FullyConnectedInt16Dsp`."""

    name = "s16_f32_hybrid_fully_connected__dsp_4"
    like = "s16_fully_connected__dsp_4"
    fields = with_scale_fields(FullyConnectedInt16Dsp.fields)

    multiple: ClassVar[int] = 1  # of the sums of products, what it computes

    def terms(self, layer: LayerContext) -> Terms:
        return self.product_terms(layer, 1, SUMS)

    def finish(self, layer: LayerContext) -> Finish:
        finish = dynamic_finish(layer, self.multiple)
        return replace(finish, spec=(("requantize", SUMS), ("long", False), *finish.spec))


@register
@frozen(eq=False)
class HybridFullyConnectedDspInt4(HybridFullyConnectedDsp):
    """The same with weights of four bits, which are multiplied as the upper halves of bytes: by 16.

    Sums have 32 bits as those of weights of eight bits have. The scales take the 16 off, exactly.
    """

    name = "s16_s4w_hybrid_fully_connected__dsp_4"
    superseded_by = frozenset({"mve"})
    trades: frozenset[Trade] = frozenset({Trade.FOUR_BITS})
    multiple: ClassVar[int] = 16

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or unsupported_int4(layer)

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        return [replace(self, packing="int4")]


@register
class HybridFullyConnectedMve(_HybridFullyConnected, FullyConnectedInt16Mve):
    """Four units at a time, eight products an instruction; weights are those of `FullyConnectedInt16Mve`."""

    name = "s16_f32_hybrid_fully_connected__mve_4"
    like = "s16_fully_connected__mve_4"

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        return Terms(call=1) + x.shape[0] * sum_terms(SUMS, x.shape[1], out.shape[1])

    def finish(self, layer: LayerContext) -> Finish:
        finish = dynamic_finish(layer)
        return replace(finish, spec=(("requantize", SUMS), *finish.spec))


@register
class HybridFullyConnectedMveInt4(HybridFullyConnectedMve):
    """The same with weights of four bits, two in a byte, see `nibble_rows`."""

    name = "s16_s4w_hybrid_fully_connected__mve_4"
    trades = frozenset({Trade.FOUR_BITS})

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or unsupported_int4(layer)

    def cost(self, layer: LayerContext) -> float:
        # Four shifts beside nine instructions.
        return 1.44 * self.price(layer, self.terms(layer)) + scale_cost(layer)

    def pack(self, matrix: Array) -> Constant:
        return nibble_rows(matrix)

    def finish(self, layer: LayerContext) -> Finish:
        finish = super().finish(layer)
        return replace(finish, spec=(*finish.spec, ("int4", True)))
