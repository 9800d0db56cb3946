"""Hybrid fully connected layers: the kernels for int16 activations, with sums that are scaled to float32.

`dynamic_finish` scales the sums. Activations are in [-255, 255], so that sums fit 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from microfold.ir.types import Array
from microfold.kernels.call import Constant, KernelCall
from microfold.kernels.conv2d.s16_mve import nibble_rows, sum_terms
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fully_connected.portable import UnitGroups, fully_connected_types
from microfold.kernels.fully_connected.s16_dsp import FullyConnectedInt16Dsp
from microfold.kernels.fully_connected.s16_mve import FullyConnectedInt16Mve
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize.dynamic_scale import (
    SUMS,
    dynamic_finish,
    scale_cost,
    unsupported_hybrid,
    unsupported_int4,
    with_scale_fields,
)
from microfold.kernels.requantize.finish import OutputStage
from microfold.ops.fully_connected.hybrid_fully_connected import HybridFullyConnected

# Default coefficients of storing outputs. `scale_cost` has the cost of scaling sums.
_STORES = {f"finish_{SUMS}": 3.0, f"block_{SUMS}": 14.0, "int4_pair": 13.0}


class _HybridFullyConnected(Kernel):
    """Mixin that turns a kernel for int16 activations into a hybrid one. It is the first base class."""

    op = HybridFullyConnected

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_hybrid(layer)

    def cost(self, layer: LayerContext) -> float:
        return super().cost(layer) + scale_cost(layer)

    def default_coefficient(self, term: str) -> float:
        return _STORES.get(term, super().default_coefficient(term))


@register
class HybridFullyConnectedPortable(_HybridFullyConnected, UnitGroups):
    """Hybrid fully connected layer of up to 4 units at a time, with weights of `UnitGroups`."""

    name = "s16_f32_hybrid_fully_connected__c_4"
    like = "s16_fully_connected__c_4"
    fields = with_scale_fields(UnitGroups.fields)

    def lower(self, layer: LayerContext) -> KernelCall:
        return self.call(layer, "fully_connected/hybrid.c.j2", dynamic_finish(layer))


@register
class HybridFullyConnectedDsp(_HybridFullyConnected, FullyConnectedInt16Dsp, frozen=True):
    """Hybrid fully connected layer of 4 units at a time by SMLAD, as in `FullyConnectedInt16Dsp`."""

    name = "s16_f32_hybrid_fully_connected__dsp_4"
    like = "s16_fully_connected__dsp_4"
    fields = with_scale_fields(FullyConnectedInt16Dsp.fields)

    multiple: ClassVar[int] = 1  # Factor by which computed sums exceed the sums of products.

    def terms(self, layer: LayerContext) -> Terms:
        return self.product_terms(layer, 1, SUMS)

    def finish(self, layer: LayerContext) -> OutputStage:
        finish = dynamic_finish(layer, self.multiple)
        return replace(finish, spec=(("requantize", SUMS), ("long", False), *finish.spec))


@register
class HybridFullyConnectedDspInt4(HybridFullyConnectedDsp, frozen=True):
    """`HybridFullyConnectedDsp` with 4-bit weights, multiplied as upper nibbles, 16 times as large.

    Sums fit 32 bits as with int8 weights. The scales compensate the factor of 16 exactly.
    """

    name = "s16_s4w_hybrid_fully_connected__dsp_4"
    superseded_by = frozenset({"mve"})
    trades: frozenset[ResourceTradeoff] = frozenset({ResourceTradeoff.FOUR_BITS})
    multiple: ClassVar[int] = 16

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or unsupported_int4(layer)

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        return [replace(self, packing="int4")]


@register
class HybridFullyConnectedMve(_HybridFullyConnected, FullyConnectedInt16Mve):
    """Hybrid fully connected layer of 4 units, 8 products per instruction, as in `FullyConnectedInt16Mve`."""

    name = "s16_f32_hybrid_fully_connected__mve_4"
    like = "s16_fully_connected__mve_4"

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out = fully_connected_types(layer)
        return Terms(call=1) + x.shape[0] * sum_terms(SUMS, x.shape[1], out.shape[1])

    def finish(self, layer: LayerContext) -> OutputStage:
        finish = dynamic_finish(layer)
        return replace(finish, spec=(("requantize", SUMS), *finish.spec))


@register
class HybridFullyConnectedMveInt4(HybridFullyConnectedMve):
    """`HybridFullyConnectedMve` with 4-bit weights, two in a byte, see `nibble_rows`."""

    name = "s16_s4w_hybrid_fully_connected__mve_4"
    trades = frozenset({ResourceTradeoff.FOUR_BITS})

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or unsupported_int4(layer)

    def cost(self, layer: LayerContext) -> float:
        # Four shifts in addition to nine instructions.
        return 1.44 * self.price(layer, self.terms(layer)) + scale_cost(layer)

    def pack(self, matrix: Array) -> Constant:
        return nibble_rows(matrix)

    def finish(self, layer: LayerContext) -> OutputStage:
        finish = super().finish(layer)
        return replace(finish, spec=(*finish.spec, ("int4", True)))
