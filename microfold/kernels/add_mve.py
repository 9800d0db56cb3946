"""Addition, subtraction and squared difference kernels for Helium."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.kernels.add import quantized_parameters
from microfold.kernels.broadcast_mve import BinaryMve, lane_form
from microfold.kernels.kernel import Call, Constant, Parameter, Site, register
from microfold.kernels.linear_sum import linear_form_fields, refuses_linear_form
from microfold.kernels.mve import Form
from microfold.ops.add import Add
from microfold.ops.squared_difference import SquaredDifference
from microfold.ops.sub import Sub


class _SumMve(BinaryMve):
    """Two multiply-accumulates and a shift, where a linear form is found that is exact for all operands."""

    template = "add/mve.c.j2"
    vector_instructions = 10.0

    def supports(self, site: Site) -> str | None:
        return super().supports(site) or refuses_linear_form(site)

    def lower(self, site: Site) -> Call:
        return self.vector_call(site, (), linear_form_fields(site))


@register
class AddMve(_SumMve):
    name = "s8_add__mve"
    op = Add


@register
class SubMve(_SumMve):
    name = "s8_sub__mve"
    op = Sub


class _ScaledSumMve(BinaryMve):
    """The reference's own steps."""

    template = "add/mve_scaled.c.j2"
    vector_instructions = 22.5
    combine: ClassVar[str] = ""

    def supports(self, site: Site) -> str | None:
        if reason := super().supports(site):
            return reason
        return next((form for form in self._forms(site) if not isinstance(form, Form)), None)

    def _forms(self, site: Site) -> list[Form | str]:
        parameters = quantized_parameters(site)
        multipliers = parameters.first, parameters.second, parameters.output
        squares = self.op is SquaredDifference
        return [
            lane_form(multiplier, squares and multiplier is parameters.output) for multiplier in multipliers
        ]

    def lower(self, site: Site) -> Call:
        out = site.node.outputs[0].type.quant
        parameters = quantized_parameters(site)
        first, second, output = self._forms(site)
        biases = [-v.type.quant.zero_point for v in site.node.operands[:2] if v.type.quant is not None]
        scales = zip((*biases, 0), (parameters.first, parameters.second, parameters.output), strict=True)
        records = np.array([(bias, m.mantissa, m.shift) for bias, m in scales], np.int32)
        assert out is not None and isinstance(first, Form)
        assert isinstance(second, Form) and isinstance(output, Form)
        spec = (
            ("first", first.value),
            ("second", second.value),
            ("output", output.value),
            ("left_shift", parameters.left_shift),
            ("squares", self.op is SquaredDifference),
            ("combine", self.combine),
        )
        fields: dict[str, Parameter] = {
            "scales": Constant("scales", records, record="mf_lane_scale"),
            "output_zero_point": out.zero_point,
        }
        return self.vector_call(site, spec, fields)


@register
class AddScaledMve(_ScaledSumMve):
    name = "s8_add__mve_scaled"
    op = Add
    combine = "vaddq_s32"


@register
class SubScaledMve(_ScaledSumMve):
    name = "s8_sub__mve_scaled"
    op = Sub
    combine = "vsubq_s32"


@register
class SquaredDifferenceMve(_ScaledSumMve):
    name = "s8_squared_difference__mve"
    op = SquaredDifference
