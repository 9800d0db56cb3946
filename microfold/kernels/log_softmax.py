"""Logarithm of softmax, in portable C."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import DType
from microfold.kernels import epilogue
from microfold.kernels.kernel import Call, Constant, Function, Kernel, Parameter, Site, register
from microfold.ops.log_softmax import LogSoftmax, inverse_multiplier, scaled_differences
from microfold.ops.softmax import INPUT_INTEGER_BITS, SUM_INTEGER_BITS, exp_table, softmax_parameters

# Beyond, the 32-bit sum of exponentials, each at most 2^19, might overflow.
_MAXIMUM_DEPTH = 4095


class _LogSoftmax(Kernel):
    def supports(self, site: Site) -> str | None:
        x = site.node.operands[0].type
        expected = DType.INT8 if self.name.startswith("s8") else DType.FLOAT32
        if x.dtype is not expected:
            return f"it computes {expected.value}; the input is {x.dtype.value}"
        return epilogue.unsupported_epilogue(site.node)

    def overlap(self, site: Site, index: int) -> int | None:
        # All of a row is read before its first element is written; then element by element.
        return 0

    def shape(self, site: Site) -> dict[str, Parameter]:
        x = site.node.operands[0].type
        return {"rows": x.size // x.shape[-1], "depth": x.shape[-1]}


@register
class LogSoftmaxInt8(_LogSoftmax):
    """Exponentials and scaled differences from tables of 256, then the reference's logarithm of the sum."""

    name = "s8_log_softmax__c"
    op = LogSoftmax

    def supports(self, site: Site) -> str | None:
        depth = site.node.operands[0].type.shape[-1]
        if depth > _MAXIMUM_DEPTH:
            return f"it needs at most {_MAXIMUM_DEPTH} elements in a row; there are {depth}"
        return super().supports(site)

    def cost(self, site: Site) -> float:
        x = site.node.operands[0].type
        return x.size * 35.0 + x.size // x.shape[-1] * 350.0

    def lower(self, site: Site) -> Call:
        quant = site.node.operands[0].type.quant
        assert quant is not None
        low, high = epilogue.integer_bounds(site.node)
        inverse = inverse_multiplier(quant)
        parameters = self.shape(site) | {
            "exponentials": Constant("exponentials", exp_table(1.0, quant)),
            "differences": Constant("differences", scaled_differences(quant, np.arange(-255, 1))),
            "lowest_difference": softmax_parameters(1.0, quant).difference_min - 1,
            "inverse_multiplier": inverse.mantissa,
            "inverse_shift": inverse.shift,
            "output_minimum": low,
            "output_maximum": high,
        }
        spec = (("sum_bits", SUM_INTEGER_BITS), ("input_bits", INPUT_INTEGER_BITS))
        return Call(Function("log_softmax/c.c.j2", self.name, spec), parameters)


@register
class LogSoftmaxFloat(_LogSoftmax):
    name = "f32_log_softmax__c"
    op = LogSoftmax

    def cost(self, site: Site) -> float:
        return site.node.operands[0].type.size * 150.0

    def lower(self, site: Site) -> Call:
        low, high = epilogue.float_bounds(site.node)
        parameters = self.shape(site) | {"output_minimum": low, "output_maximum": high}
        return Call(Function("log_softmax/f32.c.j2", self.name), parameters)
