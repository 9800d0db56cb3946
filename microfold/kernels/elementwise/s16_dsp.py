"""int16 addition, subtraction and multiplication for cores with DSP instructions.

The reference multiplies twice the value x by m and rounds at 32 bits. It then divides by 2^e, e > 0, and
rounds halves away from zero. SMMLAR adds the upper half of a product, rounded, to an addend:

    y = (SMMLAR(2 * x, m, 2^(e-1)) - [x < 0]) >> e

The reference subtracts 1 if the first result is negative, but this form does so if x is negative. They differ
if the first result is 0 and x is negative; then both return 0. The correction is only needed if outputs may
be negative.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import DType
from microfold.kernels.call import KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.add import centred_hull, quantized_parameters
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS, BinaryKernel
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.int16_sums import int16_clamping
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub

# Fractional bits of operands on the common scale, as in `add_parameters` for int16.
LEFT_SHIFT = 15


class _Int16Dsp(BinaryKernel):
    """Base class of kernels that scale by a multiplier below one half, with SMMLAR and a shift.

    The multiplier, 2^(e-1) and e are fields of the layer. The module docstring has the proof. `supports` and
    `refuses` check its conditions: the multiplier is below one half, and twice an operand fits 32 bits.
    """

    features = frozenset({"dsp"})
    dtype = DType.INT16

    def supports(self, layer: LayerContext) -> str | None:
        if reason := super().supports(layer):
            return reason
        shift = self.output(layer).shift
        if not -30 <= shift < 0:
            return "it needs multipliers below one half"
        return self.refuses(layer)

    def refuses(self, layer: LayerContext) -> str | None:
        """Return the reason if the operands do not fit; None if they do."""
        raise NotImplementedError

    def output(self, layer: LayerContext) -> Multiplier:
        """Return the multiplier of the sum or product."""
        raise NotImplementedError

    def int16_call(
        self,
        layer: LayerContext,
        spec: tuple[tuple[str, SpecValue], ...],
        fields: dict[str, Parameter],
        lowest: int,
    ) -> KernelCall:
        """Return the call, with the rescaling of sums or products added.

        Args:
            lowest: lower bound of the sums or products.
        """
        multiplier = self.output(layer)
        clamp_kind, limits = int16_clamping(layer)
        positive = lowest >= 0 or clamp_kind in ("relu", "limited")
        fields |= {
            "multiplier": multiplier.mantissa,
            "rounding": 1 << (-multiplier.shift - 1),
            "shift": -multiplier.shift,
            **limits,
        }
        spec += (
            ("signed", not positive),
            ("clamp_kind", clamp_kind),
            ("late_loads", layer.target.has("late_loads")),
        )
        return self.call(layer, spec, fields)


class _SumInt16Dsp(_Int16Dsp):
    """Sums of two operands on twice their common scale, each scaled by a shift, or with one or two roundings.

    `_form` returns how an operand is scaled. `_bounds` computes the extremes of the sum by the reference's
    own multiplication. If they are within 31 bits, the module's proof holds.
    """

    template = "elementwise/add_s16_dsp.c.j2"
    fields = declare(
        "first_multiplier",
        "first_rounding",
        "first_shift",
        "second_multiplier",
        "second_rounding",
        "second_shift",
        Field("multiplier", "multiplier of the sum"),
        "rounding",
        "shift",
        *output_range.LIMIT_FIELDS,
        *LOOP_FIELDS,
    )
    sign: ClassVar[str]

    def terms(self, layer: LayerContext) -> Terms:
        size, forms = layer.node.outputs[0].type.size, [self._form(m) for m in self._operands(layer)]
        scaled = Terms(once=size * forms.count("once"), twice=size * forms.count("twice"))
        return super().terms(layer) + scaled

    def output(self, layer: LayerContext) -> Multiplier:
        return quantized_parameters(layer).output

    def refuses(self, layer: LayerContext) -> str | None:
        multipliers = self._operands(layer)
        if any(not self._form(multiplier) for multiplier in multipliers):
            return "it needs a common scale that is twice the larger one"
        low, high = self._bounds(layer)
        if low < -(1 << 30) or high >= 1 << 30:
            return f"sums must fit 31 bits; they reach [{low}, {high}]"
        return None

    def _operands(self, layer: LayerContext) -> tuple[Multiplier, Multiplier]:
        parameters = quantized_parameters(layer)
        assert parameters.left_shift == LEFT_SHIFT
        return parameters.first, parameters.second

    def _form(self, multiplier: Multiplier) -> str:
        """Return how an operand is scaled: ``half``, ``once`` or ``twice`` rounded, or empty if not."""
        if multiplier == (1 << 30, 0):
            return "half"
        if multiplier.shift > 0:
            return ""
        return "once" if multiplier.shift == 0 else "twice"

    def _bounds(self, layer: LayerContext) -> tuple[int, int]:
        """Return the smallest and largest sum on the common scale."""
        ends = [
            numerics.multiply_by_quantized_multiplier(
                np.array(centred_hull(layer, index), np.int64) << LEFT_SHIFT, *multiplier
            ).astype(np.int64)
            for index, multiplier in enumerate(self._operands(layer))
        ]
        first, second = ends[0], ends[1] if self.op is Add else -ends[1][::-1]
        return int(first[0] + second[0]), int(first[1] + second[1])

    def lower(self, layer: LayerContext) -> KernelCall:
        fields: dict[str, Parameter] = {}
        forms: list[str] = []
        for side, multiplier in zip(("first", "second"), self._operands(layer), strict=True):
            form = self._form(multiplier)
            forms.append(form)
            if form != "half":
                fields[f"{side}_multiplier"] = multiplier.mantissa
            if form == "twice":
                fields |= {
                    f"{side}_rounding": 1 << (-multiplier.shift - 1),
                    f"{side}_shift": -multiplier.shift,
                }
        spec = (("first", forms[0]), ("second", forms[1]), ("sign", self.sign))
        return self.int16_call(layer, spec, fields, self._bounds(layer)[0])


@register
class AddInt16Dsp(_SumInt16Dsp):
    """Sums of int16: both operands are added on twice their common scale, and scaled by SMMLAR."""

    name = "s16_add__dsp"
    op = Add
    sign = "+"


@register
class SubInt16Dsp(_SumInt16Dsp):
    """Differences of int16; for bounds, the extremes of the second operand are negated and swapped."""

    name = "s16_sub__dsp"
    op = Sub
    sign = "-"


@register
class MulInt16Dsp(_Int16Dsp):
    """Products of int16, doubled and requantised by one SMMLAR.

    Twice the largest product, 2^31, is replaced by 2^31 - 1 if both have the same output, which `refuses`
    checks.
    """

    name = "s16_mul__dsp"
    op = Mul
    template = "elementwise/mul_s16_dsp.c.j2"
    fields = declare(
        "multiplier",
        "rounding",
        "shift",
        *output_range.LIMIT_FIELDS,
        *LOOP_FIELDS,
    )

    def output(self, layer: LayerContext) -> Multiplier:
        first, second = (v.type.quant for v in layer.node.operands[:2])
        assert first is not None and second is not None and isinstance(layer.node.op, Mul)
        return layer.node.op.multiplier(first, second)

    def refuses(self, layer: LayerContext) -> str | None:
        if self._bounds(layer)[1] < 1 << 30:
            return None
        mantissa, shift = self.output(layer)
        exact = int(numerics.multiply_by_quantized_multiplier(np.array([1 << 30]), mantissa, shift)[0])
        saturated = (((1 << 31) - 1) * mantissa + (1 << 31) >> 32) + (1 << (-shift - 1)) >> -shift
        if exact != saturated:
            return "the square of the smallest element might be rounded the other way"
        return None

    def _bounds(self, layer: LayerContext) -> tuple[int, int]:
        corners = [a * b for a in centred_hull(layer, 0) for b in centred_hull(layer, 1)]
        return min(corners), max(corners)

    def lower(self, layer: LayerContext) -> KernelCall:
        return self.int16_call(layer, (), {}, self._bounds(layer)[0])
