"""Softmax kernels in portable C."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.types import DType, Quant
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.normalize.row import RowKernel
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.fast_math import FastSoftmax
from microfold.ops.normalize.softmax import (
    Softmax,
    exp_table,
    int16_exp_table,
    int16_multiplier,
    int16_reciprocal_table,
    softmax_parameters,
)


def _operator(layer: LayerContext) -> Softmax:
    assert isinstance(layer.node.op, Softmax)
    return layer.node.op


class _SoftmaxInt8(RowKernel):
    """Softmax by the maximum of a row, the sum of exponentials, its reciprocal, and a product per element.

    The constant `exponentials` has 256 int32, starting with a difference of -255 steps. The reference's own
    `exp_table` computes them. Reciprocal and products are the reference's fixed-point steps. `maximum_depth`
    keeps the sum in 32 bits.
    """

    trades = frozenset({ResourceTradeoff.STEP_TABLE})
    computed = False
    # In longer rows, the 32-bit sum of exponentials, each at most 2^19, might overflow.
    maximum_depth = 8191
    fields = declare(
        Field("exponentials", "exp of x - 255 steps in Q0, for x in [0, 255]"),
        Field("multiplier", "multiplier from a difference of inputs to Q5, after the shift"),
        "left_shift",
        Field("lowest_difference", "smaller differences have no exponential"),
        "rows",
        "depth",
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        x = layer.node.operands[0].type
        return Terms(call=1, row=x.size // x.shape[-1], element=x.size)

    def exponentials(self, beta: float, quant: Quant) -> dict[str, Parameter]:
        """Return the fields from which the code gets exponentials of differences."""
        return {"exponentials": Constant("exponentials", exp_table(beta, quant))}

    def lower(self, layer: LayerContext) -> KernelCall:
        quant = layer.node.operands[0].type.quant
        assert quant is not None
        low, high = output_range.integer_bounds(layer.node)
        spec = (
            ("type", f"{self.dtypes[1].value}_t"),
            ("bits", 8 * self.dtypes[1].itemsize),
            ("computed", self.computed),
        )
        parameters = (
            self.shape(layer)
            | self.exponentials(_operator(layer).beta, quant)
            | {"output_minimum": low, "output_maximum": high}
        )
        return KernelCall(CFunction("normalize/softmax.c.j2", self.name, spec, self.fields), parameters)


@register
class SoftmaxInt8(_SoftmaxInt8):
    """Softmax of int8 with an int8 result."""

    name = "s8_softmax__c"
    op = Softmax
    dtypes = (DType.INT8, DType.INT8)


@register
class SoftmaxInt8ToInt16(_SoftmaxInt8):
    """Softmax of int8 with an int16 result."""

    name = "s8_s16_softmax__c"
    op = Softmax
    dtypes = (DType.INT8, DType.INT16)


class _ComputedSoftmaxInt8(_SoftmaxInt8):
    """Softmax without a table: each exponential is computed when it is used, twice for each element.

    The steps are as in `fixed_point.exp_on_negative_values`, which also computes `exp_table`.
    """

    trades = frozenset[ResourceTradeoff]()
    code = 900
    computed = True

    def exponentials(self, beta: float, quant: Quant) -> dict[str, Parameter]:
        parameters = softmax_parameters(beta, quant)
        return {
            "multiplier": parameters.mantissa,
            "left_shift": parameters.left_shift,
            "lowest_difference": parameters.difference_min,
        }


@register
class ComputedSoftmaxInt8(_ComputedSoftmaxInt8):
    """Softmax of int8 with computed exponentials and an int8 result."""

    name = "s8_softmax__c_exp"
    op = Softmax
    dtypes = (DType.INT8, DType.INT8)


@register
class ComputedSoftmaxInt8ToInt16(_ComputedSoftmaxInt8):
    """Softmax of int8 with computed exponentials and an int16 result."""

    name = "s8_s16_softmax__c_exp"
    op = Softmax
    dtypes = (DType.INT8, DType.INT16)


@register
class SoftmaxInt16(RowKernel):
    """Softmax of int16, with exponentials and the reciprocal interpolated in tables.

    Tables and interpolation are the reference's own, by `int16_exp_table` and `int16_reciprocal_table`. Rows
    of less than 2^15 elements keep the sum in 32 bits. The output stores the exponentials until the sum is
    known.
    """

    name = "s16_softmax__c"
    op = Softmax
    dtypes = (DType.INT16, DType.INT16)
    fields = declare(
        Field("exponentials", "exp(x) over [-10, 0], for interpolation"),
        Field("reciprocals", "1 / (1 + x) over [0, 1], for interpolation"),
        "rows",
        "depth",
        Field("multiplier", "multiplier from a difference of inputs to the first table's scale"),
        "shift",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        depth = layer.node.operands[0].type.shape[-1]
        return (
            f"the sum of {depth} exponentials might overflow" if depth >= 1 << 15 else super().supports(layer)
        )

    def terms(self, layer: LayerContext) -> Terms:
        x = layer.node.operands[0].type
        return Terms(call=1, row=x.size // x.shape[-1], element=x.size)

    def lower(self, layer: LayerContext) -> KernelCall:
        quant = layer.node.operands[0].type.quant
        assert quant is not None
        multiplier = int16_multiplier(_operator(layer).beta, quant)
        low, high = output_range.integer_bounds(layer.node)
        parameters = self.shape(layer) | {
            "exponentials": Constant("exponentials", int16_exp_table()),
            "reciprocals": Constant("reciprocals", int16_reciprocal_table()),
            "multiplier": multiplier.mantissa,
            "shift": multiplier.shift,
            "output_minimum": low,
            "output_maximum": high,
        }
        return KernelCall(CFunction("normalize/softmax_s16.c.j2", self.name, (), self.fields), parameters)


class _SoftmaxFloat(RowKernel):
    """Softmax of float32 by the maximum of a row, exponentials, their sum, and a division per element.

    Class attributes:
        exp: name of the C function that computes exponentials.
    """

    dtypes = (DType.FLOAT32, DType.FLOAT32)
    exp: ClassVar[str]
    fields = declare(
        "rows",
        "depth",
        "beta",
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        x = layer.node.operands[0].type
        return Terms(call=1, row=x.size // x.shape[-1], element=x.size)

    def lower(self, layer: LayerContext) -> KernelCall:
        low, high = output_range.float_bounds(layer.node)
        parameters = self.shape(layer) | {
            "beta": float(_operator(layer).beta),
            "output_minimum": low,
            "output_maximum": high,
        }
        return KernelCall(
            CFunction("normalize/softmax_f32.c.j2", self.name, (("exp", self.exp),), self.fields),
            parameters,
        )


@register
class SoftmaxFloat(_SoftmaxFloat):
    """Softmax of float32 with `expf` of the C library."""

    name = "f32_softmax__c"
    op = Softmax
    exp = "expf"


@register
class FastSoftmaxFloat(_SoftmaxFloat):
    """Softmax of float32 with `mf_fast_exp`, for the operator `FastSoftmax`."""

    name = "f32_fast_softmax__c"
    op = FastSoftmax
    exp = "mf_fast_exp"
