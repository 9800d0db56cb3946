"""Addition and subtraction of int8 in portable C: two products and a shift, where a linear form is exact."""

from __future__ import annotations

from microfold.ir.types import DType
from microfold.kernels.elementwise.broadcast import BinaryKernel
from microfold.kernels.kernel import KernelCall, LayerContext, register
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.linear_form import linear_form_fields, refuses_linear_form
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.sub import Sub


class _LinearSum(BinaryKernel):
    """``output = clamp((first * factor + second * factor + offset) >> shift)``."""

    template = "elementwise/add_linear.c.j2"
    dtype = DType.INT8
    instructions = 9.5
    thumb1_instructions = 17.0

    def supports(self, site: LayerContext) -> str | None:
        return super().supports(site) or refuses_linear_form(site)

    def cost(self, site: LayerContext) -> float:
        clamped, _ = output_range.clamping(site.node)
        return super().cost(site) + (4.0 * site.node.outputs[0].type.size if clamped else 0.0)

    def lower(self, site: LayerContext) -> KernelCall:
        clamped, limits = output_range.clamping(site.node)
        return self.call(site, (("clamped", clamped),), linear_form_fields(site) | limits)


@register
class AddLinear(_LinearSum):
    name = "s8_add__c_linear"
    op = Add


@register
class SubLinear(_LinearSum):
    name = "s8_sub__c_linear"
    op = Sub
