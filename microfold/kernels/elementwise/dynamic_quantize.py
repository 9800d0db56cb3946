"""Dynamic quantisation of rows of floats, with scales computed at run time: portable C, FPU and Helium."""

from __future__ import annotations

from typing import ClassVar

from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.elementwise.conversions.dynamic_quantize import DynamicQuantize


def vector_helper(layer: LayerContext, asymmetric: bool) -> str:
    """Return the end of the name of the helper that quantises a vector fastest on the layer's target."""
    if layer.target.has("mve_fp"):
        core = "_mve"
    else:
        core = "_fpu" if layer.target.has("fpu") and layer.target.has("thumb2") else ""
    return f"{'asymmetric' if asymmetric else 'symmetric'}{core}"


class _DynamicQuantize(Kernel):
    """Dynamic quantisation of a row in two passes: one finds its range, one quantises it.

    The kernel has no constants. Limits are compared as integers: the bits of positive floats have the order
    of their values, the bits of negative ones the reverse order. Values are rounded half away from zero
    without a sum of floats, because compilers might fuse the sum with the product. The code truncates twice
    the quotient to an integer t. The rounded value is ``(t + 1) >> 1``, or ``t >> 1`` if t is negative. The
    zero point is computed in double, as in the reference.

    Class attributes:
        helpers: end of the names of the helpers that it calls.
    """

    op = DynamicQuantize
    helpers: ClassVar[str] = ""
    fields = declare("rows", Field("length", "elements of a row"))

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        # Each element of two bytes overwrites memory that has been read: an element of four bytes.
        return 0

    def planning(self, layer: LayerContext) -> float:
        """Estimate the instructions between the two passes: divisions, in double if there is a zero point."""
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
    """Dynamic quantisation in portable C, one element after the other."""

    name = "f32_s16_dynamic_quantize__c"

    def cost(self, layer: LayerContext) -> float:
        assert isinstance(layer.node.op, DynamicQuantize)
        x = layer.node.operands[0].type
        # Instructions of a product in software, counted under QEMU in layers of dscnn_bn_aeq_dynwi8.
        product = 10.0 if layer.target.has("fpu") else 43.0 if layer.target.has("thumb2") else 185.0
        element = product + (17.0 if layer.node.op.asymmetric else 13.0)
        return x.size * element + x.shape[0] * self.planning(layer)


@register
class DynamicQuantizeFpu(_DynamicQuantize):
    """Dynamic quantisation of four elements per iteration; SSAT halves and clamps in one instruction."""

    name = "f32_s16_dynamic_quantize__fpu"
    features = frozenset({"fpu", "thumb2"})
    helpers = "_fpu"

    def cost(self, layer: LayerContext) -> float:
        assert isinstance(layer.node.op, DynamicQuantize)
        x = layer.node.operands[0].type
        return x.size * (18.0 if layer.node.op.asymmetric else 14.0) + x.shape[0] * self.planning(layer)


@register
class DynamicQuantizeMve(_DynamicQuantize):
    """Dynamic quantisation of four elements per instruction."""

    name = "f32_s16_dynamic_quantize__mve"
    features = frozenset({"mve_fp"})
    helpers = "_mve"

    def cost(self, layer: LayerContext) -> float:
        x = layer.node.operands[0].type
        return 5.0 * x.size + x.shape[0] * self.planning(layer)
