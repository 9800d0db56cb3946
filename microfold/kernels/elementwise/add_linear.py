"""Addition and subtraction of int8 in portable C, with two products and a shift if a linear form is exact."""

from __future__ import annotations

from microfold.ir.types import DType
from microfold.kernels.call import KernelCall
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS, BinaryKernel
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.linear_form import (
    LINEAR_FORM_FIELDS,
    linear_form_parameters,
    refuses_linear_form,
)
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.sub import Sub


class _LinearSum(BinaryKernel):
    """``output = clamp((first * factor + second * factor + offset) >> shift)``, element by element.

    The two factors, the offset and the shift are fields of the layer. `find_linear_form` checks a candidate
    against the reference for all 65,536 pairs of operands. `refuses_linear_form` returns the reason if no
    candidate is exact.
    """

    template = "elementwise/add_linear.c.j2"
    fields = (*LINEAR_FORM_FIELDS, *output_range.LIMIT_FIELDS, *LOOP_FIELDS)
    dtype = DType.INT8

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or refuses_linear_form(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        clamp, limits = output_range.clamping(layer.node)
        return self.call(layer, (("clamp", clamp),), linear_form_parameters(layer) | limits)


@register
class AddLinear(_LinearSum):
    """Sums of int8 by one linear form of both operands."""

    name = "s8_add__c_linear"
    op = Add


@register
class SubLinear(_LinearSum):
    """Differences of int8 by one linear form, whose second factor is negative."""

    name = "s8_sub__c_linear"
    op = Sub
