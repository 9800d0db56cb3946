"""Quantised PReLU with Helium."""

from __future__ import annotations

import numpy as np

from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import DType
from microfold.kernels.call import Constant, KernelCall, Parameter
from microfold.kernels.elementwise.add import centred_hull
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS
from microfold.kernels.elementwise.broadcast_mve import BinaryMve, lane_form
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.mve import MveForm
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.activations.prelu import Prelu


class _QuantizedPrelu(BinaryMve):
    """Quantised PReLU that computes both results for each of four lanes, and selects one.

    The constant `scales` has two records (bias, multiplier, shift): one for non-negative inputs, and one for
    products with alpha. The biases are the negated zero points of input and alpha. `supports` checks that
    both results fit 32 bits. `lane_form` decides whether the second rounding, VRSHL, needs a sign correction;
    only products with alpha can need one.
    """

    op = Prelu
    template = "elementwise/prelu_mve.c.j2"
    fields = declare(
        Field(
            "scales",
            "scales of non-negative inputs, and of products with alpha, whose bias is alpha's",
        ),
        Field("left_shift", "left shift of non-negative inputs"),
        "output_zero_point",
        *output_range.LIMIT_FIELDS,
        *LOOP_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        if reason := super().supports(layer):
            return reason
        form = self._slope_form(layer)
        if not isinstance(form, MveForm):
            return f"for products with alpha, {form}"
        identity, _ = self._multipliers(layer)
        if max(map(abs, centred_hull(layer, 0))) << max(identity.shift, 0) >= 1 << 31:
            return "the multiplier is too large"
        return None

    def _multipliers(self, layer: LayerContext) -> tuple[Multiplier, Multiplier]:
        x, alpha = (v.type.quant for v in layer.node.operands[:2])
        assert x is not None and alpha is not None and isinstance(layer.node.op, Prelu)
        return layer.node.op.multipliers(x, alpha)

    def _slope_form(self, layer: LayerContext) -> MveForm | str:
        corners = [a * b for a in centred_hull(layer, 0) for b in centred_hull(layer, 1)]
        if max(map(abs, corners)) >= 1 << 31:
            return "they may exceed 32 bits"
        return lane_form(self._multipliers(layer)[1], False)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, alpha = (v.type.quant for v in layer.node.operands[:2])
        out = layer.node.outputs[0].type.quant
        identity, slope = self._multipliers(layer)
        below = self._slope_form(layer)
        assert x is not None and alpha is not None and out is not None and isinstance(below, MveForm)
        # Only non-negative results are selected from this form, so halves are rounded up.
        spec = (("above", MveForm.RELU.value), ("below", below.value), ("left_shift", identity.shift > 0))
        records = [
            (-x.zero_point, identity.mantissa, min(identity.shift, 0)),
            (-alpha.zero_point, slope.mantissa, slope.shift),
        ]
        fields: dict[str, Parameter] = {
            "scales": Constant("scales", np.array(records, np.int32), record="mf_lane_scale"),
            "output_zero_point": out.zero_point,
        }
        if identity.shift > 0:
            fields["left_shift"] = identity.shift
        return self.vector_call(layer, spec, fields)


@register
class PreluMve(_QuantizedPrelu):
    """PReLU of int8 elements and slopes; their products are far below 32 bits."""

    name = "s8_prelu__mve"
    dtype = DType.INT8


@register
class PreluInt16Mve(_QuantizedPrelu):
    """PReLU of int16 elements, if no product of centred elements exceeds 32 bits."""

    name = "s16_prelu__mve"
    dtype = DType.INT16
