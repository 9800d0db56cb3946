"""Addition and subtraction of int8 with DSP instructions, if a linear form is exact.

Two instructions with a mask convert four elements to two pairs of int16 with 256 times their values. SMLAWB
and SMLAWT add the upper 32 bits of the 48-bit product of a factor and one element of a pair,

    floor(256 * factor * (256 * a) / 2^16) = factor * a

which is exact if 256 times the factors fit 32 bits.
"""

from __future__ import annotations

from microfold.kernels.call import KernelCall
from microfold.kernels.elementwise.binary_dsp import WordKernel
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS
from microfold.kernels.fields import describe
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.linear_form import (
    LINEAR_FORM_FIELDS,
    layer_linear_form,
    linear_form_parameters,
    refuses_linear_form,
)
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.sub import Sub


class _LinearSumDsp(WordKernel):
    """``output = clamp((first * factor + second * factor + offset) >> shift)``, in groups of eight elements.

    The factors in the layer are 256 times as large, see the module docstring. `find_linear_form` has checked
    the form for all 65,536 pairs of operands. `supports` requires factors below 2^23, so that SMLAWB and
    SMLAWT are exact.
    """

    template = "elementwise/add_linear_dsp.c.j2"
    fields = (*LINEAR_FORM_FIELDS, *output_range.LIMIT_FIELDS, *LOOP_FIELDS)
    group = 8
    code = 300

    def supports(self, layer: LayerContext) -> str | None:
        if reason := super().supports(layer) or refuses_linear_form(layer):
            return reason
        form = layer_linear_form(layer)
        assert form is not None
        if max(map(abs, form.factors)) >= 1 << 23:
            return f"its factors must be below {1 << 23} in magnitude; got {form.factors}"
        return None

    def lower(self, layer: LayerContext) -> KernelCall:
        clamp, limits = output_range.clamping(layer.node)
        form = linear_form_parameters(layer)
        shift = form.pop("shift")
        assert isinstance(shift, int)
        for name in ("first_factor", "second_factor"):
            factor = form[name]
            assert isinstance(factor, int)
            form[name] = factor << 8
        output = f"(first * first_factor + second * second_factor + offset) >> {shift}"
        fields = describe(self.fields, first_factor=f"output = {output}, with factors stored times 256")
        spec = ("shift", shift), ("clamp", clamp), ("dual_issue", layer.target.has("dual_issue"))
        return self.call(layer, spec, form | limits, fields)


@register
class AddLinearDsp(_LinearSumDsp):
    """Sums of int8 with SMLAWB and SMLAWT."""

    name = "s8_add__dsp_linear"
    op = Add


@register
class SubLinearDsp(_LinearSumDsp):
    """Differences of int8 with SMLAWB and SMLAWT; the second factor is negative."""

    name = "s8_sub__dsp_linear"
    op = Sub
