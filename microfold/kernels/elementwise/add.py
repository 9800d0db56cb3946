"""Addition and subtraction in portable C, and the functions that all quantised additions share."""

from __future__ import annotations

import numpy as np

from microfold.arithmetic.numerics import Multiplier
from microfold.ir.types import Array, DType
from microfold.kernels.call import Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS, BinaryKernel
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.mul_hi import Requantization, plan_requantization
from microfold.kernels.requantize.mul_lo import plan_narrow
from microfold.ops.elementwise.add import Add, AddParameters, add_parameters
from microfold.ops.elementwise.squared_difference import SquaredDifference, squared_difference_parameters
from microfold.ops.elementwise.sub import Sub


def quantized_parameters(layer: LayerContext) -> AddParameters:
    """Return the reference's fixed-point parameters of the node."""
    first, second = (v.type.quant for v in layer.node.operands[:2])
    op = layer.node.op
    assert first is not None and second is not None and isinstance(op, Add | Sub | SquaredDifference)
    if isinstance(op, SquaredDifference):
        return squared_difference_parameters(first, second, op.out)
    return add_parameters(first, second, op.out)


def plan_one(
    bias: int, bounds: tuple[int, int], multiplier: Multiplier, zero_point: int, low: int, multiple: int = 1
) -> Requantization:
    """Call `plan_requantization` for a single record."""
    return plan_requantization(
        np.array([bias]),
        (np.array([bounds[0]]), np.array([bounds[1]])),
        np.array([multiplier.mantissa]),
        np.array([multiplier.shift]),
        zero_point,
        low,
        multiple=multiple,
    )


def plan_short(
    layer: LayerContext, bounds: tuple[int, int], multiplier: Multiplier, zero_point: int
) -> tuple[str, Array]:
    """Return the shortest exact form of a node's output that the core can multiply, and its single record."""
    limits = output_range.integer_bounds(layer.node)
    if layer.target.has("thumb1"):
        mantissa, shift = np.array([multiplier.mantissa]), np.array([multiplier.shift])
        ends = np.array([bounds[0]]), np.array([bounds[1]])
        narrow = plan_narrow(np.array([0]), ends, (mantissa, shift), zero_point, limits)
        if narrow is not None:
            return narrow[0].value, narrow[1]
    plan = plan_one(0, bounds, multiplier, zero_point, limits[0])
    return plan.form.value, plan.records


def centred_hull(layer: LayerContext, index: int) -> tuple[int, int]:
    """Return the smallest and largest element of a quantised operand, minus its zero point."""
    value = layer.node.inputs[index]
    assert value is not None and value.type.quant is not None
    low, high = (bound - value.type.quant.zero_point for bound in layer.range(index).hull)
    return low, high


def plan_input(layer: LayerContext, index: int, left_shift: int, multiplier: Multiplier) -> Requantization:
    """Plan the scaling of an operand to the common scale: ``requantise(bias + (x << left_shift))``."""
    value = layer.node.inputs[index]
    assert value is not None and value.type.quant is not None
    step = 1 << left_shift
    low, high = (bound * step for bound in centred_hull(layer, index))
    return plan_one(-value.type.quant.zero_point * step, (low, high), multiplier, 0, -(1 << 31), step)


class _QuantizedSum(BinaryKernel):
    """Base class of sums, differences and squared differences that follow the reference step by step.

    Both operands are scaled to a common scale, combined by the C expression `combine`, and requantised. The
    constant `scales` has three records (bias, multiplier, addend, shift): one for each operand, and one for
    the result. `plan_requantization` proves each form for all values of an operand, and for all values of the
    combined result.
    """

    template = "elementwise/add.c.j2"
    fields = declare(
        Field("scales", "scales of the operands and of the result"),
        *output_range.LIMIT_FIELDS,
        *LOOP_FIELDS,
    )
    combine = "left + right"
    squares = False

    def never_negative(self, layer: LayerContext) -> bool:
        """Return whether this is a sum of two operands that are never below their zero points."""
        return self.op is Add and all(centred_hull(layer, index)[0] >= 0 for index in (0, 1))

    def terms(self, layer: LayerContext) -> Terms:
        *operands, result = (plan.form.value for plan in self._plans(layer))
        size = layer.node.outputs[0].type.size
        found = super().terms(layer) + Terms({f"result_{result}": size})
        for form in operands:
            found += Terms({f"operand_{form}": size})
        return found

    def _plans(self, layer: LayerContext) -> tuple[Requantization, Requantization, Requantization]:
        """Return the requantisations of both operands, and of the result."""
        return layer.remembered((_QuantizedSum, self), lambda: self._find_plans(layer))

    def _find_plans(self, layer: LayerContext) -> tuple[Requantization, Requantization, Requantization]:
        out = layer.node.outputs[0].type.quant
        assert out is not None
        parameters = quantized_parameters(layer)
        first, second = (
            plan_input(layer, index, parameters.left_shift, multiplier)
            for index, multiplier in ((0, parameters.first), (1, parameters.second))
        )
        # On the common scale, each operand is at most half of its shifted range. The sum is at most that
        # range.
        extent = (self.dtype.range[1] - self.dtype.range[0]) << parameters.left_shift
        if self.squares:
            extent *= extent
        low, _ = output_range.integer_bounds(layer.node)
        bounds = 0 if self.never_negative(layer) else -extent, extent
        return first, second, plan_one(0, bounds, parameters.output, out.zero_point, low)

    def lower(self, layer: LayerContext) -> KernelCall:
        clamp, limits = output_range.clamping(layer.node)
        first, second, output = plans = self._plans(layer)
        spec = (
            ("type", f"{self.dtype.value}_t"),
            ("combine", self.combine),
            ("first", first.form.value),
            ("second", second.form.value),
            ("output", output.form.value),
            ("left_shift", quantized_parameters(layer).left_shift),
            ("clamp", clamp),
        )
        fields: dict[str, Parameter] = {
            "scales": Constant("scales", np.concatenate([p.records for p in plans]), record="mf_channel"),
        }
        return self.call(layer, spec, fields | limits)


@register
class AddInt8(_QuantizedSum):
    """Sums of int8, whose requantisation needs no sign correction if no operand is below its zero point."""

    name = "s8_add__c"
    op = Add
    dtype = DType.INT8


@register
class SubInt8(_QuantizedSum):
    """Differences of int8, which may be negative for all operands."""

    name = "s8_sub__c"
    op = Sub
    dtype = DType.INT8
    combine = "left - right"


@register
class AddInt16(_QuantizedSum):
    """Sums of int16, which are shifted left by 15 bits for the common scale, instead of 20."""

    name = "s16_add__c"
    op = Add
    dtype = DType.INT16


@register
class SubInt16(_QuantizedSum):
    """Differences of int16, with the left shift of `AddInt16`."""

    name = "s16_sub__c"
    op = Sub
    dtype = DType.INT16
    combine = "left - right"


@register
class SquaredDifferenceInt8(_QuantizedSum):
    """Squared differences of int8 on the common scale, with the squared bounds of a difference."""

    name = "s8_squared_difference__c"
    op = SquaredDifference
    dtype = DType.INT8
    combine = "(left - right) * (left - right)"
    squares = True


@register
class SquaredDifferenceInt16(_QuantizedSum):
    """Squared differences of int16 on the common scale, with the squared bounds of a difference."""

    name = "s16_squared_difference__c"
    op = SquaredDifference
    dtype = DType.INT16
    combine = "(left - right) * (left - right)"
    squares = True
