"""Addition and subtraction in portable C, and what all quantised additions share."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import DType, Quant
from microfold.kernels import epilogue
from microfold.kernels.broadcast import BinaryKernel
from microfold.kernels.kernel import Call, Constant, Parameter, Site, register
from microfold.kernels.requantize import Requantization, plan_requantization
from microfold.numerics import Multiplier
from microfold.ops.add import Add, AddParameters, add_parameters
from microfold.ops.squared_difference import SquaredDifference, squared_difference_parameters
from microfold.ops.sub import Sub


def quantized_parameters(site: Site) -> AddParameters:
    """The reference's fixed-point parameters of the node."""
    first, second = (v.type.quant for v in site.node.operands[:2])
    op = site.node.op
    assert first is not None and second is not None and isinstance(op, Add | Sub | SquaredDifference)
    if isinstance(op, SquaredDifference):
        return squared_difference_parameters(first, second, op.out)
    return add_parameters(first, second, op.out)


def plan_one(
    bias: int, bounds: tuple[int, int], multiplier: Multiplier, zero_point: int, low: int, multiple: int = 1
) -> Requantization:
    """`plan_requantization` of a single record."""
    return plan_requantization(
        np.array([bias]),
        (np.array([bounds[0]]), np.array([bounds[1]])),
        np.array([multiplier.mantissa]),
        np.array([multiplier.shift]),
        zero_point,
        low,
        multiple=multiple,
    )


def plan_input(dtype: DType, quant: Quant, left_shift: int, multiplier: Multiplier) -> Requantization:
    """How an operand gets to the common scale: ``requantise(bias + (x << left_shift))``."""
    step = 1 << left_shift
    low, high = ((bound - quant.zero_point) * step for bound in dtype.range)
    return plan_one(-quant.zero_point * step, (low, high), multiplier, 0, -(1 << 31), step)


class _QuantizedSum(BinaryKernel):
    template = "add/c.c.j2"
    instructions = 45
    combine = "left + right"
    squares = False

    def lower(self, site: Site) -> Call:
        first, second = (v.type.quant for v in site.node.operands[:2])
        out = site.node.outputs[0].type.quant
        assert first is not None and second is not None and out is not None
        parameters = quantized_parameters(site)
        inputs = [
            plan_input(self.dtype, quant, parameters.left_shift, multiplier)
            for quant, multiplier in ((first, parameters.first), (second, parameters.second))
        ]
        # Each operand is at most half of the range that its left shift gives it.
        extent = (self.dtype.range[1] - self.dtype.range[0]) << parameters.left_shift
        if self.squares:
            extent *= extent
        low, high = epilogue.integer_bounds(site.node)
        output = plan_one(0, (-extent, extent), parameters.output, out.zero_point, low)
        plans = (*inputs, output)
        spec = (
            ("type", f"{self.dtype.value}_t"),
            ("combine", self.combine),
            ("first", inputs[0].form.value),
            ("second", inputs[1].form.value),
            ("output", output.form.value),
            ("left_shift", parameters.left_shift),
        )
        fields: dict[str, Parameter] = {
            "scales": Constant("scales", np.concatenate([p.records for p in plans]), record="mf_channel"),
            "output_minimum": low,
            "output_maximum": high,
        }
        return self.call(site, spec, fields)


@register
class AddInt8(_QuantizedSum):
    name = "s8_add__c"
    op = Add
    dtype = DType.INT8


@register
class SubInt8(_QuantizedSum):
    name = "s8_sub__c"
    op = Sub
    dtype = DType.INT8
    combine = "left - right"


@register
class AddInt16(_QuantizedSum):
    name = "s16_add__c"
    op = Add
    dtype = DType.INT16
    instructions = 70


@register
class SubInt16(_QuantizedSum):
    name = "s16_sub__c"
    op = Sub
    dtype = DType.INT16
    instructions = 70
    combine = "left - right"


@register
class SquaredDifferenceInt8(_QuantizedSum):
    name = "s8_squared_difference__c"
    op = SquaredDifference
    dtype = DType.INT8
    instructions = 60
    combine = "(left - right) * (left - right)"
    squares = True


@register
class SquaredDifferenceInt16(_QuantizedSum):
    name = "s16_squared_difference__c"
    op = SquaredDifference
    dtype = DType.INT16
    instructions = 80
    combine = "(left - right) * (left - right)"
    squares = True
