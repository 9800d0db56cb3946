"""Multiplication of int8 and int16 with Helium."""

from __future__ import annotations

from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import DType
from microfold.kernels.call import KernelCall, Parameter
from microfold.kernels.elementwise.add import centred_hull
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS
from microfold.kernels.elementwise.broadcast_mve import BinaryMve, lane_form
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.mve import MveForm
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.mul import Mul


@register
class MulMve(BinaryMve):
    """Products of four centred elements at once, scaled in the reference's two steps.

    VQRDMULH and VRSHL are the reference's roundings, see `packing.mve`. `lane_form` decides whether the
    second one needs a sign correction. It needs none if no product is negative, or if the output is clamped
    at its zero point.
    """

    name = "s8_mul__mve"
    op = Mul
    template = "elementwise/mul_mve.c.j2"
    fields = declare(
        "first_zero_point",
        "second_zero_point",
        "multiplier",
        Field("shift", "left shift, not positive"),
        "output_zero_point",
        *output_range.LIMIT_FIELDS,
        *LOOP_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        if reason := super().supports(layer):
            return reason
        form = self._form(layer)
        return None if isinstance(form, MveForm) else form

    def _multiplier(self, layer: LayerContext) -> Multiplier:
        first, second = (v.type.quant for v in layer.node.operands[:2])
        assert first is not None and second is not None and isinstance(layer.node.op, Mul)
        return layer.node.op.multiplier(first, second)

    def _form(self, layer: LayerContext) -> MveForm | str:
        out = layer.node.outputs[0].type.quant
        assert out is not None
        corners = [a * b for a in centred_hull(layer, 0) for b in centred_hull(layer, 1)]
        low, _ = output_range.integer_bounds(layer.node)
        return lane_form(self._multiplier(layer), min(corners) >= 0 or low >= out.zero_point)

    def lower(self, layer: LayerContext) -> KernelCall:
        first, second = (v.type.quant for v in layer.node.operands[:2])
        out = layer.node.outputs[0].type.quant
        form, multiplier = self._form(layer), self._multiplier(layer)
        assert first is not None and second is not None and out is not None and isinstance(form, MveForm)
        fields: dict[str, Parameter] = {
            "first_zero_point": first.zero_point,
            "second_zero_point": second.zero_point,
            "multiplier": multiplier.mantissa,
            "shift": multiplier.shift,
            "output_zero_point": out.zero_point,
        }
        return self.vector_call(layer, (("requantize", form.value),), fields)


@register
class MulInt16Mve(MulMve):
    """Products of int16 in vectors of four; a product has at most 31 bits."""

    name = "s16_mul__mve"
    dtype = DType.INT16
