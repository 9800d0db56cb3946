"""Quantisation of rows of floats by steps that follow from them: in portable C, for FPUs, for Helium."""

from __future__ import annotations

from typing import ClassVar

from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.elementwise.conversions.dynamic_quantize import DynamicQuantize


def vector_helper(layer: LayerContext, asymmetric: bool) -> str:
    """Ends the name of the helper that quantises a vector best on the layer's target."""
    if layer.target.has("mve_fp"):
        core = "_mve"
    else:
        core = "_fpu" if layer.target.has("fpu") and layer.target.has("thumb2") else ""
    return f"{'asymmetric' if asymmetric else 'symmetric'}{core}"


class _DynamicQuantize(Kernel):
    """A row twice: for its range, and to quantise it.

    No constants. Bounds are compared as integers: bits of positive floats have the order of their values,
    those of negative ones the reverse. Values are rounded half away from zero without a sum of floats, which
    compilers might fuse with the product: twice the steps are cut to an integer t, and ``(t + 1) >> 1``,
    ``t >> 1`` where t is negative, is the rounded half. The zero point is found in double, as in the
    reference.

    Class attributes:
        helpers: ends the names of those that it calls.
    """

    op = DynamicQuantize
    helpers: ClassVar[str] = ""
    fields = declare("rows", Field("length", "of a row"))

    def supports(self, layer: LayerContext) -> str | None:
        return "it fuses nothing" if layer.node.epilogue else None

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        # Two bytes are written where four were read.
        return 0

    def planning(self, layer: LayerContext) -> float:
        """Estimated instructions between the two passes: divisions, in double where there is a zero point."""
        assert isinstance(layer.node.op, DynamicQuantize)
        division = 20.0 if layer.target.has("fpu") else 400.0
        return 2 * division + (2000.0 if layer.node.op.asymmetric else 60.0)

    def lower(self, layer: LayerContext) -> KernelCall:
        assert isinstance(layer.node.op, DynamicQuantize)
        x = layer.node.operands[0].type
        spec = (("asymmetric", layer.node.op.asymmetric), ("helpers", self.helpers))
        return KernelCall(
            CFunction("elementwise/conversions/dynamic_quantize.c.j2", self.name, spec, self.fields),
            {"rows": x.shape[0], "length": x.size // x.shape[0]},
        )


@register
class DynamicQuantizePortable(_DynamicQuantize):
    """One element after the other."""

    name = "f32_s16_dynamic_quantize__c"

    def cost(self, layer: LayerContext) -> float:
        assert isinstance(layer.node.op, DynamicQuantize)
        x = layer.node.operands[0].type
        # In software, counted under QEMU in layers of dscnn_bn_aeq_dynwi8.
        product = 10.0 if layer.target.has("fpu") else 43.0 if layer.target.has("thumb2") else 185.0
        element = product + (17.0 if layer.node.op.asymmetric else 13.0)
        return x.size * element + x.shape[0] * self.planning(layer)


@register
class DynamicQuantizeFpu(_DynamicQuantize):
    """Four elements an iteration; SSAT halves and clamps in one instruction."""

    name = "f32_s16_dynamic_quantize__fpu"
    features = frozenset({"fpu", "thumb2"})
    helpers = "_fpu"

    def cost(self, layer: LayerContext) -> float:
        assert isinstance(layer.node.op, DynamicQuantize)
        x = layer.node.operands[0].type
        return x.size * (18.0 if layer.node.op.asymmetric else 14.0) + x.shape[0] * self.planning(layer)


@register
class DynamicQuantizeMve(_DynamicQuantize):
    """Four elements an instruction."""

    name = "f32_s16_dynamic_quantize__mve"
    features = frozenset({"mve_fp"})
    helpers = "_mve"

    def cost(self, layer: LayerContext) -> float:
        x = layer.node.operands[0].type
        return 5.0 * x.size + x.shape[0] * self.planning(layer)
