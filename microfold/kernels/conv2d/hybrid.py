"""Hybrid convolution: the kernels for int16 activations, with sums that are scaled to float32.

`dynamic_finish` scales the sums. Activations are in [-255, 255], so that sums fit 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from microfold.ir.types import Array
from microfold.kernels.call import Constant, KernelCall
from microfold.kernels.conv2d.portable import (
    PatchConv,
    conv_types,
    is_pointwise,
    unsupported_grouping,
)
from microfold.kernels.conv2d.s16_dsp import Conv2DInt16Dsp
from microfold.kernels.conv2d.s16_mve import Conv2DInt16Mve, nibble_rows, sum_terms
from microfold.kernels.cost.terms import Terms
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
from microfold.ops.convolution.hybrid_conv2d import HybridConv2D

# Default coefficients of storing outputs. `scale_cost` has the cost of scaling sums.
_STORES = {f"finish_{SUMS}": 3.0, f"block_{SUMS}": 14.0, "int4_pair": 14.0}


class _HybridConv(Kernel):
    """Mixin that turns a kernel for int16 activations into a hybrid one. It is the first base class."""

    op = HybridConv2D

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_grouping(layer) or unsupported_hybrid(layer)

    def cost(self, layer: LayerContext) -> float:
        return super().cost(layer) + scale_cost(layer)

    def default_coefficient(self, term: str) -> float:
        return _STORES.get(term, super().default_coefficient(term))

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return super().overlap(layer, index) if index == 0 else None

    def supports_indirection(self, layer: LayerContext) -> bool:
        return False


def conv_finish(layer: LayerContext, multiple: int = 1) -> OutputStage:
    """Return `dynamic_finish`, with the number of images if the fields of the traversal do not have it."""
    finish = dynamic_finish(layer, multiple)
    x, _, _, window = conv_types(layer)
    if not is_pointwise(window):
        return finish
    return replace(finish, parameters={**finish.parameters, "images": x.shape[0]})


@register
class HybridConv2DPortable(_HybridConv, PatchConv):
    """Hybrid convolution of 2 pixels by 2 channels, with the weights of `PatchConv`."""

    name = "s16_f32_hybrid_conv2d__c_2x2"
    like = "s16_conv2d__c_2x2"
    fields = with_scale_fields(PatchConv.fields)

    def lower(self, layer: LayerContext) -> KernelCall:
        return self.call(layer, "conv2d/hybrid.c.j2", conv_finish(layer))


@register
class HybridConv2DDsp(_HybridConv, Conv2DInt16Dsp, frozen=True):
    """Hybrid convolution of 4 pixels by 2 channels by SMLAD, with weights and panel of `Conv2DInt16Dsp`."""

    name = "s16_f32_hybrid_conv2d__dsp_4x2"
    like = "s16_conv2d__dsp_4x2"
    fields = with_scale_fields(Conv2DInt16Dsp.fields)

    multiple: ClassVar[int] = 1  # Factor by which computed sums exceed the sums of products.

    def terms(self, layer: LayerContext) -> Terms:
        return self.product_terms(layer, 1, SUMS)

    def finish(self, layer: LayerContext) -> OutputStage:
        finish = conv_finish(layer, self.multiple)
        return replace(finish, spec=(("requantize", SUMS), ("long", False), *finish.spec))


@register
class HybridConv2DDspInt4(HybridConv2DDsp, frozen=True):
    """`HybridConv2DDsp` with 4-bit weights, which are multiplied as upper nibbles, 16 times as large.

    Sums fit 32 bits as with int8 weights. The scales compensate the factor of 16 exactly.
    """

    name = "s16_s4w_hybrid_conv2d__dsp_4x2"
    superseded_by = frozenset({"mve"})
    trades: frozenset[ResourceTradeoff] = frozenset({ResourceTradeoff.FOUR_BITS})
    multiple: ClassVar[int] = 16

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or unsupported_int4(layer)

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        return [replace(self, packing="int4")]


@register
class HybridConv2DMve(_HybridConv, Conv2DInt16Mve):
    """Hybrid convolution of 1 pixel by 4 channels, 8 products per instruction, as in `Conv2DInt16Mve`."""

    name = "s16_f32_hybrid_conv2d__mve_1x4"
    like = "s16_conv2d__mve_1x4"

    def terms(self, layer: LayerContext) -> Terms:
        _, weights, out, _ = conv_types(layer)
        depth = weights.size // weights.shape[0]
        return self.product_terms(layer, sum_terms(SUMS, depth, out.shape[3]))

    def finish(self, layer: LayerContext) -> OutputStage:
        finish = conv_finish(layer)
        return replace(finish, spec=(("requantize", SUMS), *finish.spec))


@register
class HybridConv2DMveInt4(HybridConv2DMve):
    """`HybridConv2DMve` with 4-bit weights, two in a byte, see `nibble_rows`."""

    name = "s16_s4w_hybrid_conv2d__mve_1x4"
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
