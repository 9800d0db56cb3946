"""Logarithm of softmax, in portable C."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.normalize.row import RowKernel
from microfold.kernels.requantize import output_range
from microfold.ops.normalize.log_softmax import LogSoftmax, inverse_multiplier, scaled_differences
from microfold.ops.normalize.softmax import (
    INPUT_INTEGER_BITS,
    SUM_INTEGER_BITS,
    exp_table,
    softmax_parameters,
)


@register
class LogSoftmaxInt8(RowKernel):
    """Log-softmax by tables of exponentials and scaled differences, and the reference's logarithm of the sum.

    Each table has 256 entries, starting with a difference of -255 steps. The reference's own `exp_table` and
    `scaled_differences` compute them. `maximum_depth` keeps the sum of exponentials in 32 bits.
    """

    name = "s8_log_softmax__c"
    op = LogSoftmax
    dtypes = (DType.INT8, DType.INT8)
    # In longer rows, the 32-bit sum of exponentials, each at most 2^19, might overflow.
    maximum_depth = 4095
    fields = declare(
        Field("exponentials", "exp of x - 255 steps in Q0, for x in [0, 255]"),
        Field("differences", f"x - 255 steps in Q{INPUT_INTEGER_BITS}, for x in [0, 255]"),
        "rows",
        "depth",
        "lowest_difference",
        Field("inverse_multiplier", f"multiplier from Q{INPUT_INTEGER_BITS} to steps of the input"),
        "inverse_shift",
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        x = layer.node.operands[0].type
        return Terms(call=1, row=x.size // x.shape[-1], element=x.size)

    def lower(self, layer: LayerContext) -> KernelCall:
        quant = layer.node.operands[0].type.quant
        assert quant is not None
        low, high = output_range.integer_bounds(layer.node)
        inverse = inverse_multiplier(quant)
        parameters = self.shape(layer) | {
            "exponentials": Constant("exponentials", exp_table(1.0, quant)),
            "differences": Constant("differences", scaled_differences(quant, np.arange(-255, 1))),
            "lowest_difference": softmax_parameters(1.0, quant).difference_min - 1,
            "inverse_multiplier": inverse.mantissa,
            "inverse_shift": inverse.shift,
            "output_minimum": low,
            "output_maximum": high,
        }
        spec = (("sum_bits", SUM_INTEGER_BITS), ("input_bits", INPUT_INTEGER_BITS))
        return KernelCall(CFunction("normalize/log_softmax.c.j2", self.name, spec, self.fields), parameters)


@register
class LogSoftmaxFloat(RowKernel):
    """Log-softmax by the maximum of a row, `expf` for each element, `logf` of their sum, and differences."""

    name = "f32_log_softmax__c"
    op = LogSoftmax
    dtypes = (DType.FLOAT32, DType.FLOAT32)
    fields = declare(
        "rows",
        "depth",
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        x = layer.node.operands[0].type
        return Terms(call=1, row=x.size // x.shape[-1], element=x.size)

    def lower(self, layer: LayerContext) -> KernelCall:
        low, high = output_range.float_bounds(layer.node)
        parameters = self.shape(layer) | {"output_minimum": low, "output_maximum": high}
        return KernelCall(CFunction("normalize/log_softmax_f32.c.j2", self.name, (), self.fields), parameters)
