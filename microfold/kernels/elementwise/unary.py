"""Elementwise kernels of one int16 operand, in portable C.

They follow the reference step by step: interpolation in a table (`UnaryInt16`, `SigmoidInt16`), or
multiplications (`Rescale`). `elementwise.unary_f32` has the kernels for float32, `elementwise.table` the
kernels for 8-bit values.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import DType, Quant
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES, UnaryKernel
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.logistic import Logistic, int16_scaling, sigmoid_table
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.rsqrt import EXTRA_BITS, Rsqrt
from microfold.ops.elementwise.unary import Unary


@register
class UnaryInt16(UnaryKernel):
    """The reference's interpolation between the entries of a table, element by element.

    The constant `table` has 513 results of the operator's `int16_table`, at multiples of 128 from the lowest
    input on. `mf_interpolate` interpolates between two of them with the reference's steps.
    """

    name = "s16_unary__c_table"
    op = Unary
    fields = declare(
        Field("table", "results at 513 multiples of 128, from the lowest input on"),
        "length",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not DType.INT16:
            return f"it needs int16; got {x.dtype.value}"
        if isinstance(layer.node.op, Unary) and layer.node.op.function == "sqrt":
            return "the reference computes sqrt of int16 without a table"
        return super().supports(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x = layer.node.operands[0].type
        assert isinstance(layer.node.op, Unary)
        clamp, limits = output_range.clamping(layer.node)
        parameters: dict[str, Parameter] = {
            "table": Constant("table", layer.node.op.int16_table(x.element)),
            "length": x.size,
        }
        function = CFunction(
            "elementwise/tables/table_s16.c.j2", "s16_lookup__c", (("clamp", clamp),), self.fields
        )
        return KernelCall(function, parameters | limits)


class SigmoidInt16(UnaryKernel):
    """The reference's interpolated sigmoid, which also computes tanh.

    The constant `table` is `sigmoid_table`, with 256 entries of uint16. `int16_scaling` returns the
    reference's multiplier and shift, with rounding, from the input's scale to the table's scale.

    Class attributes:
        shifts: left shifts for which the reference uses a power-of-two scale unchanged.
    """

    shifts: ClassVar[tuple[int, ...]]
    fields = declare(
        Field("table", "logistic function at multiples of 1/24 in Q0.16"),
        "length",
        Field("multiplier", "multiplier to the scale of the table"),
        "rounding",
        "shift",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not DType.INT16:
            return f"it needs int16; got {x.dtype.value}"
        return super().supports(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x = layer.node.operands[0].type
        assert x.quant is not None
        scaling = int16_scaling(x.quant.scale, self.shifts)
        clamp, limits = output_range.clamping(layer.node)
        parameters: dict[str, Parameter] = {
            "table": Constant("table", sigmoid_table()),
            "length": x.size,
            "multiplier": scaling.multiplier,
            "rounding": (1 << (scaling.shift - 1)) if scaling.shift > 0 else 0,
            "shift": scaling.shift,
        }
        spec = (("tanh", self.op is Tanh), ("clamp", clamp))
        return KernelCall(
            CFunction("elementwise/tables/logistic_s16.c.j2", self.name, spec, self.fields),
            parameters | limits,
        )


@register
class LogisticInt16(SigmoidInt16):
    """Sigmoid in Q0.15."""

    name = "s16_logistic__c"
    op = Logistic
    shifts = (0,)


@register
class TanhInt16(SigmoidInt16):
    """``2 * sigmoid(2x) - 1``, with the table of the sigmoid."""

    name = "s16_tanh__c"
    op = Tanh
    shifts = (0, 1)


class Rescale(UnaryKernel):
    """Multiplication of centred elements, one after the other; negative ones may have another multiplier.

    The multiplication has the reference's two roundings. The result is clamped before the zero point is
    added, so that it cannot overflow. The multipliers are fields of the layer.
    """

    fields = declare(
        "length",
        "input_zero_point",
        "output_zero_point",
        "multiplier",
        "shift",
        Field("below_multiplier", "multiplier for elements below the zero point"),
        "below_shift",
        Field("minimum", "smallest output, minus its zero point"),
        "maximum",
    )

    def supports(self, layer: LayerContext) -> str | None:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        if x.dtype not in (DType.INT16, DType.INT32) or out.dtype not in (
            DType.INT8,
            DType.INT16,
            DType.INT32,
        ):
            return f"it rescales int16 and int32; got {x.dtype.value} to {out.dtype.value}"
        if x.quant is None or (x.dtype is DType.INT32 and x.quant.zero_point):
            return "int32 inputs must have zero point 0"
        return super().supports(layer)

    def terms(self, layer: LayerContext) -> Terms:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        return Terms({"call": 1, f"{x.dtype.value}_to_{out.dtype.value}": out.size})

    def bounds(self, layer: LayerContext) -> tuple[int, int]:
        return output_range.integer_bounds(layer.node)

    def multipliers(self, layer: LayerContext, x: Quant) -> tuple[Multiplier, Multiplier]:
        """Return the multipliers for elements from the zero point on, and below it; default: one for both."""
        assert isinstance(layer.node.op, Requantize | Relu | Abs)
        multiplier = layer.node.op.multiplier(x)
        return multiplier, multiplier

    def below(self, layer: LayerContext) -> str:
        """Return the C expression of results below the zero point, in terms of `scaled`."""
        return "scaled"

    def lower(self, layer: LayerContext) -> KernelCall:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        assert x.quant is not None and out.quant is not None
        above, below = self.multipliers(layer, x.quant)
        low, high = self.bounds(layer)
        zero_point = out.quant.zero_point
        two_sided = above != below or self.below(layer) != "scaled"
        magnitude: SpecValue = isinstance(layer.node.op, Abs)
        spec = (
            ("input_type", C_TYPES[x.dtype]),
            ("output_type", C_TYPES[out.dtype]),
            ("magnitude", magnitude),
            ("two_sided", two_sided),
            ("below", self.below(layer)),
        )
        parameters: dict[str, Parameter] = {
            "length": x.size,
            "input_zero_point": x.quant.zero_point,
            "output_zero_point": zero_point,
            "multiplier": above.mantissa,
            "shift": above.shift,
            "below_multiplier": below.mantissa,
            "below_shift": below.shift,
            # Limits before the zero point is added.
            "minimum": max(low - zero_point, -(1 << 31)),
            "maximum": min(high - zero_point, (1 << 31) - 1),
        }
        if not two_sided:
            del parameters["below_multiplier"], parameters["below_shift"]
        return KernelCall(
            CFunction("elementwise/conversions/requantize.c.j2", "rescale__c", spec, self.fields), parameters
        )


@register
class RequantizeWide(Rescale):
    """Requantisation by one multiplier for all elements, from int16 or int32 to int8, int16 or int32."""

    name = "requantize__c"
    op = Requantize


@register
class ReluInt16(Rescale):
    """ReLU by one multiplier for all elements; fused clips narrow the operator's bounds."""

    name = "s16_relu__c"
    op = Relu

    def bounds(self, layer: LayerContext) -> tuple[int, int]:
        assert isinstance(layer.node.op, Relu)
        low, high = layer.node.op.bounds()
        fused = output_range.integer_bounds(layer.node)
        return tuple(int(b) for b in np.clip((low, high), *fused))  # type: ignore[return-value]


@register
class AbsInt16(Rescale):
    """Magnitudes of centred elements, rescaled by one multiplier."""

    name = "s16_abs__c"
    op = Abs


@register
class LeakyReluInt16(Rescale):
    """Leaky ReLU: elements below the zero point use the multiplier of the slope, and its sign."""

    name = "s16_leaky_relu__c"
    op = LeakyRelu

    def multipliers(self, layer: LayerContext, x: Quant) -> tuple[Multiplier, Multiplier]:
        assert isinstance(layer.node.op, LeakyRelu)
        parameters = layer.node.op.parameters(x)
        return parameters.identity, parameters.slope

    def below(self, layer: LayerContext) -> str:
        assert isinstance(layer.node.op, LeakyRelu)
        x = layer.node.operands[0].type.quant
        assert x is not None
        return "-scaled" if layer.node.op.parameters(x).slope_is_negative else "scaled"


@register
class SqrtInt16(UnaryKernel):
    """Square root of each element in float32, truncated to steps of the output; without tables.

    An element below the zero point, for which the reference ends the run with an error, has the root of 0.
    """

    name = "s16_sqrt__c"
    op = Unary
    fields = declare(
        "length",
        "input_zero_point",
        "output_zero_point",
        "scale",
        Field("output_scale", "unit of the results"),
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        x, op = layer.node.operands[0].type, layer.node.op
        assert isinstance(op, Unary)
        if x.dtype is not DType.INT16 or op.function != "sqrt":
            return f"it computes the sqrt of int16; got {op.function} of {x.dtype.value}"
        return super().supports(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        assert x.quant is not None and out.quant is not None
        low, high = output_range.integer_bounds(layer.node)
        parameters: dict[str, Parameter] = {
            "length": x.size,
            "input_zero_point": x.quant.zero_point,
            "output_zero_point": out.quant.zero_point,
            "scale": float(x.quant.scale),
            "output_scale": float(out.quant.scale),
            "output_minimum": low,
            "output_maximum": high,
        }
        return KernelCall(CFunction("elementwise/sqrt_s16.c.j2", self.name, (), self.fields), parameters)


@register
class RsqrtInt16(UnaryKernel):
    """Inverse square root of each element by the reference's steps, then its two products; no tables.

    Elements that are not positive have no root; their result is the largest output.
    """

    name = "s16_rsqrt__c"
    op = Rsqrt
    fields = declare(
        "length",
        "multiplier",
        "shift",
        "output_zero_point",
        Field("highest", "result for elements without a root"),
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not DType.INT16 or x.quant is None or x.quant.zero_point:
            return f"it needs int16 with zero point 0; got {x.dtype.value}"
        return super().supports(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        assert isinstance(layer.node.op, Rsqrt) and x.quant is not None and out.quant is not None
        multiplier = layer.node.op.multiplier(x.quant)
        low, high = output_range.integer_bounds(layer.node)
        parameters: dict[str, Parameter] = {
            "length": x.size,
            "multiplier": multiplier.mantissa,
            "shift": multiplier.shift - EXTRA_BITS,
            "output_zero_point": out.quant.zero_point,
            "highest": out.dtype.range[1],
            "output_minimum": low,
            "output_maximum": high,
        }
        spec = (("output_type", C_TYPES[out.dtype]), ("extra_bits", EXTRA_BITS))
        return KernelCall(
            CFunction("elementwise/tables/rsqrt_s16.c.j2", self.name, spec, self.fields), parameters
        )
