"""Addition and subtraction of int8 in portable C: two products and a shift, where a linear form is exact."""

from __future__ import annotations

from microfold.ir.types import DType
from microfold.kernels import epilogue
from microfold.kernels.broadcast import BinaryKernel
from microfold.kernels.kernel import Call, Parameter, Site, register
from microfold.kernels.linear_sum import site_linear_form
from microfold.ops.add import Add
from microfold.ops.sub import Sub


class _LinearSum(BinaryKernel):
    """``output = clamp((first * factor + second * factor + offset) >> shift)``."""

    template = "add/linear.c.j2"
    dtype = DType.INT8
    instructions = 9.5
    thumb1_instructions = 17.0

    def supports(self, site: Site) -> str | None:
        if reason := super().supports(site):
            return reason
        if site_linear_form(site) is None:
            return "no linear form gives the reference's result for all operands"
        return None

    def lower(self, site: Site) -> Call:
        form = site_linear_form(site)
        assert form is not None
        clamped, limits = epilogue.clamping(site.node)
        fields: dict[str, Parameter] = {
            "first_factor": form.factors[0],
            "second_factor": form.factors[1],
            "offset": form.offset,
            "shift": form.shift,
        }
        return self.call(site, (("clamped", clamped),), fields | limits)


@register
class AddLinear(_LinearSum):
    name = "s8_add__c_linear"
    op = Add


@register
class SubLinear(_LinearSum):
    name = "s8_sub__c_linear"
    op = Sub
