"""Rescaling of int16 elements with DSP instructions and with Helium: requantisation and some activations.

With DSP instructions, SMMULR or SMMLAR rounds the product of twice an element at 32 bits, see the module
`s16_dsp`. An element with a multiplier of one half or more is shifted left before the product.
"""

from __future__ import annotations

from typing import NamedTuple

from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms, vector_terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.elementwise.unary import AbsInt16, LeakyReluInt16, ReluInt16, RequantizeWide, Rescale
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.mve import MveForm
from microfold.kernels.requantize import output_range

# Elements per vector: its int32 lanes.
_MVE_LANES = 4


class _Sides(NamedTuple):
    """Multipliers for elements at or above the zero point, and for elements below it.

    Attributes:
        above, below: the two multipliers.
        two: whether the two sides are computed differently.
        negated: whether results below the zero point are negated.
        signed: whether results with the upper multiplier may be negative and are not clamped.
    """

    above: Multiplier
    below: Multiplier
    two: bool
    negated: bool
    signed: bool


class _RescaleSimd(Rescale):
    """Base class of kernels that multiply centred int16 elements by one multiplier, or by one for each side.

    The kernels have no tables; the multipliers are fields of the layer. `supports` checks that the widest
    element, shifted left, is below 2^headroom.

    Class attributes:
        headroom: number of bits that the shifted element may use.
    """

    headroom = 31

    def supports(self, layer: LayerContext) -> str | None:
        if reason := super().supports(layer):
            return reason
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        if x.dtype is not DType.INT16 or out.dtype is DType.INT32:
            return "it supports only int16 to int8 or int16"
        assert x.quant is not None
        reach = max(abs(bound - x.quant.zero_point) for bound in x.dtype.range)
        sides = self.sides(layer)
        if any(reach << max(side.shift, 0) >= 1 << self.headroom for side in (sides.above, sides.below)):
            return "a multiplier is too large"
        return None

    def sides(self, layer: LayerContext) -> _Sides:
        x, out = layer.node.operands[0].type.quant, layer.node.outputs[0].type.quant
        assert x is not None and out is not None
        above, below = self.multipliers(layer, x)
        negated = self.below(layer) != "scaled"
        two = above != below or negated
        signed = not two and not self.magnitude(layer) and self.bounds(layer)[0] < out.zero_point
        return _Sides(above, below, two, negated, signed)

    def magnitude(self, layer: LayerContext) -> bool:
        """Return whether the kernel first replaces elements by their magnitudes."""
        return self.op is AbsInt16.op

    def rescale_call(
        self,
        layer: LayerContext,
        variant: str,
        spec: tuple[tuple[str, SpecValue], ...],
        fields: dict[str, Parameter],
    ) -> KernelCall:
        """Return the call, with the choices and fields that all variants share added."""
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        assert x.quant is not None and out.quant is not None
        sides = self.sides(layer)
        low, high = self.bounds(layer)
        clamp = (low, high) != out.dtype.range
        spec = (
            ("output_type", C_TYPES[out.dtype]),
            ("magnitude", self.magnitude(layer)),
            ("two_sided", sides.two),
            ("negated", sides.negated),
            ("clamp", clamp),
            *spec,
        )
        parameters: dict[str, Parameter] = {
            "length": x.size,
            "input_zero_point": x.quant.zero_point,
            "output_zero_point": out.quant.zero_point,
            **fields,
        }
        if clamp:
            parameters |= {"output_minimum": low, "output_maximum": high}
        return KernelCall(
            CFunction(
                f"elementwise/conversions/requantize_{variant}.c.j2",
                f"s16_rescale__{variant}",
                spec,
                self.fields,
            ),
            parameters,
        )


class _RescaleMve(_RescaleSimd):
    """Rescaling of four elements at once: both sides are computed, and one is selected.

    VQRDMULH and VRSHL are the reference's two roundings, see `packing.mve`. The form with a sign correction
    is used only if the results of a side may be negative and are rounded twice.
    """

    features = frozenset({"mve"})
    fields = declare(
        "length",
        "input_zero_point",
        "output_zero_point",
        "multiplier",
        "left_shift",
        Field("right_shift", "not positive"),
        Field("below_multiplier", "multiplier for elements below the zero point"),
        "below_left_shift",
        "below_right_shift",
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        size = layer.node.outputs[0].type.size
        two_sided = -(-size // _MVE_LANES) * self.sides(layer).two
        return Terms(call=1, two_sided=two_sided) + vector_terms(1, size, _MVE_LANES)

    def lower(self, layer: LayerContext) -> KernelCall:
        sides = self.sides(layer)
        spec: list[tuple[str, SpecValue]] = [("tail", layer.node.outputs[0].type.size % _MVE_LANES != 0)]
        fields: dict[str, Parameter] = {}
        for prefix, side in (("", sides.above), ("below_", sides.below)):
            # Without a second rounding, no sign correction is needed.
            plain = side.shift < 0 and (sides.signed or bool(prefix))
            spec += [
                (f"{prefix or 'above_'}form", (MveForm.PLAIN if plain else MveForm.RELU).value),
                (f"{prefix or 'above_'}left", side.shift > 0),
            ]
            if prefix and not sides.two:
                continue
            fields[f"{prefix}multiplier"] = side.mantissa
            if side.shift > 0:
                fields[f"{prefix}left_shift"] = side.shift
            fields[f"{prefix}right_shift"] = min(side.shift, 0)
        return self.rescale_call(layer, "mve", tuple(spec), fields)


class _RescaleDsp(_RescaleSimd):
    """Rescaling of one element after the other, by products of twice an element that are rounded at 32 bits.

    Multipliers of one half or more use SMMULR. Smaller ones use SMMLAR, which adds the half for the second
    rounding. The module `s16_dsp` has the proof.
    """

    features = frozenset({"dsp"})
    headroom = 30
    fields = declare(
        "length",
        "input_zero_point",
        "output_zero_point",
        "multiplier",
        "left_shift",
        "rounding",
        "right_shift",
        Field("below_multiplier", "multiplier for elements below the zero point"),
        "below_left_shift",
        "below_rounding",
        "below_right_shift",
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        size, sides = layer.node.outputs[0].type.size, self.sides(layer)
        clamp = self.bounds(layer) != layer.node.outputs[0].type.dtype.range
        # Two roundings cost more than one. Each side is assumed to have half of the elements.
        twice = sum(side.shift < 0 for side in (sides.above, sides.below)) / 2
        return Terms(
            call=1,
            element=size,
            twice=size * twice,
            signed=size * sides.signed,
            two_sided=size * sides.two,
            clamped=size * clamp,
        )

    def lower(self, layer: LayerContext) -> KernelCall:
        sides = self.sides(layer)
        spec: list[tuple[str, SpecValue]] = []
        fields: dict[str, Parameter] = {}
        for prefix, side, signed in (("", sides.above, sides.signed), ("below_", sides.below, True)):
            form = "left" if side.shift >= 0 else "signed" if signed else "right"
            spec.append((f"{prefix or 'above_'}form", form))
            if prefix and not sides.two:
                continue
            fields[f"{prefix}multiplier"] = side.mantissa
            if form == "left":
                fields[f"{prefix}left_shift"] = side.shift + 1
            else:
                fields |= {f"{prefix}rounding": 1 << (-side.shift - 1), f"{prefix}right_shift": -side.shift}
        return self.rescale_call(layer, "dsp", tuple(spec), fields)


@register
class RequantizeInt16Mve(_RescaleMve, RequantizeWide):
    """Requantisation by one multiplier, four at once; with sign correction if outputs may be negative."""

    name = "s16_requantize__mve"


@register
class RequantizeInt16Dsp(_RescaleDsp, RequantizeWide):
    """Requantisation by one multiplier, with sign correction if outputs may be negative."""

    name = "s16_requantize__dsp"


@register
class ReluInt16Mve(_RescaleMve, ReluInt16):
    """ReLU by one multiplier, four at once; outputs that are clamped at the zero point need no correction."""

    name = "s16_relu__mve"


@register
class ReluInt16Dsp(_RescaleDsp, ReluInt16):
    """ReLU by one multiplier; outputs that are clamped at the zero point need no sign correction."""

    name = "s16_relu__dsp"


@register
class AbsInt16Mve(_RescaleMve, AbsInt16):
    """Magnitudes by VABS, rescaled by one multiplier; results are never negative."""

    name = "s16_abs__mve"


@register
class AbsInt16Dsp(_RescaleDsp, AbsInt16):
    """Magnitudes, rescaled by one multiplier; results are never negative."""

    name = "s16_abs__dsp"


@register
class LeakyReluInt16Mve(_RescaleMve, LeakyReluInt16):
    """Leaky ReLU that computes both multipliers for each vector; results of a negative slope are negated."""

    name = "s16_leaky_relu__mve"


@register
class LeakyReluInt16Dsp(_RescaleDsp, LeakyReluInt16):
    """Leaky ReLU with a branch for each element; results below the zero point may be negated."""

    name = "s16_leaky_relu__dsp"
