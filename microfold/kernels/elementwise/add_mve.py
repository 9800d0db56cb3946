"""Addition, subtraction and squared difference with Helium."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.kernels.call import Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.add import centred_hull, quantized_parameters
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS
from microfold.kernels.elementwise.broadcast_mve import BinaryMve, lane_form
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import define, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.names import activation_type
from microfold.kernels.packing.mve import MveForm
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.linear_form import (
    LINEAR_FORM_FIELDS,
    linear_form_parameters,
    refuses_linear_form,
)
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub


class _SumMve(BinaryMve):
    """Sums of int8 by two multiply-accumulates and a shift for four elements at once.

    `find_linear_form` has checked factors, offset and shift for all 65,536 pairs of operands. If no linear
    form is exact, `_ScaledSumMve` follows the reference step by step.
    """

    template = "elementwise/add_mve.c.j2"
    fields = (*LINEAR_FORM_FIELDS, *output_range.LIMIT_FIELDS, *LOOP_FIELDS)

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or refuses_linear_form(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        return self.vector_call(layer, (), linear_form_parameters(layer))


@register
class AddMve(_SumMve):
    """Sums of int8 by one linear form of both operands, four elements at once."""

    name = "s8_add__mve"
    op = Add


@register
class SubMve(_SumMve):
    """Differences of int8 by one linear form, four elements at once; its second factor is negative."""

    name = "s8_sub__mve"
    op = Sub


HALF = "half"
"""Form of a multiplication by one half: a left shift by one bit less."""


class _ScaledSumMve(BinaryMve):
    """Sums, differences and squared differences by the reference's steps, for four elements at once.

    Both operands are scaled to their common scale, combined, and requantised. The constant `scales` has three
    records (bias, multiplier, shift): one for each operand, and one for the result. VQRDMULH and VRSHL are
    the reference's two roundings, see `packing.mve`; `lane_form` decides whether the second one needs a sign
    correction. An operand with a multiplier of one half is shifted instead if `_forms` finds that no bit is
    lost.
    """

    template = "elementwise/add_mve_scaled.c.j2"
    fields = declare(
        Field("scales", "scales of the operands and of the result"),
        "output_zero_point",
        *output_range.LIMIT_FIELDS,
        *LOOP_FIELDS,
    )
    combine: ClassVar[str] = ""

    def terms(self, layer: LayerContext) -> Terms:
        left_shift = quantized_parameters(layer).left_shift
        vectors = layer.node.outputs[0].type.size / self.lanes
        scaled = sum(form != HALF or left_shift <= 0 for form in self._forms(layer))
        biased = sum(bias != 0 for bias in self._biases(layer))
        return super().terms(layer) + Terms(scaled=scaled * vectors, biased=biased * vectors)

    def supports(self, layer: LayerContext) -> str | None:
        if reason := super().supports(layer):
            return reason
        return next(
            (form for form in self._forms(layer) if not isinstance(form, MveForm) and form != HALF), None
        )

    def _biases(self, layer: LayerContext) -> list[int]:
        return [-v.type.quant.zero_point for v in layer.node.operands[:2] if v.type.quant is not None]

    def _forms(self, layer: LayerContext) -> list[MveForm | str]:
        """Return the forms of multiplication of both operands and the result, or why one has none."""
        parameters = quantized_parameters(layer)
        forms: list[MveForm | str] = []
        for index, multiplier in enumerate((parameters.first, parameters.second)):
            # The larger scale is half of the common scale, and no bit is lost.
            reach = max(map(abs, centred_hull(layer, index))) << parameters.left_shift
            halved = multiplier == (1 << 30, 0) and parameters.left_shift > 0 and reach < 1 << 31
            forms.append(HALF if halved else lane_form(multiplier, False))
        return [*forms, lane_form(parameters.output, self.op is SquaredDifference)]

    def lower(self, layer: LayerContext) -> KernelCall:
        out = layer.node.outputs[0].type.quant
        parameters = quantized_parameters(layer)
        first, second, output = (str(getattr(form, "value", form)) for form in self._forms(layer))
        biases = self._biases(layer)
        scales = zip((*biases, 0), (parameters.first, parameters.second, parameters.output), strict=True)
        records = np.array([(bias, m.mantissa, m.shift) for bias, m in scales], np.int32)
        assert out is not None
        spec = (
            ("first", first),
            ("second", second),
            ("output", output),
            ("first_bias", biases[0] != 0),
            ("second_bias", biases[1] != 0),
            ("left_shift", parameters.left_shift),
            ("squares", self.op is SquaredDifference),
            ("combine", self.combine),
        )
        fields: dict[str, Parameter] = {
            "scales": Constant("scales", records, record="mf_lane_scale"),
            "output_zero_point": out.zero_point,
        }
        return self.vector_call(layer, spec, fields)


def _define(name: str, operator: type[Add | Sub | SquaredDifference], combine: str) -> None:
    dtype = activation_type(name)
    doc = f"{operator.__name__} of {dtype.value} by the reference's steps, in vectors of four."
    define(_ScaledSumMve, name, operator, doc, dtype=dtype, combine=combine)


# The kernels named ``_scaled`` follow the reference; others have a linear form.
_define("s8_add__mve_scaled", Add, "vaddq_s32")
_define("s16_add__mve", Add, "vaddq_s32")
_define("s8_sub__mve_scaled", Sub, "vsubq_s32")
_define("s16_sub__mve", Sub, "vsubq_s32")
_define("s8_squared_difference__mve", SquaredDifference, "")
_define("s16_squared_difference__mve", SquaredDifference, "")
