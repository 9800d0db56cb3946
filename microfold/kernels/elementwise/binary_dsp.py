"""Products and extrema of int8 with DSP instructions: four elements in a word."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.types import DType
from microfold.kernels.call import KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import QuantizedMul
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS, BinaryKernel
from microfold.kernels.fields import declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul


class WordKernel(BinaryKernel):
    """Base class of int8 kernels that compute a group of elements at once, and the remaining ones one by one.

    Class attributes:
        group: elements per group.
    """

    features = frozenset({"dsp"})
    dtype = DType.INT8
    group: ClassVar[int] = 4

    def terms(self, layer: LayerContext) -> Terms:
        *outer, (length, *steps) = self.loops(layer)
        clamp, _ = output_range.clamping(layer.node)
        size, rest = layer.node.outputs[0].type.size, length % self.group
        runs = size // length
        grouped = runs * (length - rest)
        read = grouped * sum(step != 0 for step in steps)
        return Terms(
            call=1,
            run=runs if outer else 0,
            element=grouped,
            read=read,
            rest=runs * rest,
            clamped=size * clamp,
        )


@register
class MulInt8Dsp(QuantizedMul, WordKernel):
    """Products of int8, four at a time: SXTAB16 widens and centres two bytes of a word in one instruction.

    The halfwords are multiplied and requantised one by one. `QuantizedMul.plan` proves the form of the
    requantisation. Short forms use four times the product.
    """

    name = "s8_mul__dsp"
    op = Mul
    template = "elementwise/mul_dsp.c.j2"
    fields = declare(
        "scale",
        "first_zero_point",
        "second_zero_point",
        *output_range.LIMIT_FIELDS,
        *LOOP_FIELDS,
    )
    code = 280


class _Extremum(WordKernel):
    """Extrema of four bytes at a time: SSUB8 compares the bytes of two words, SEL selects from them.

    The kernel has no constants and does not round: the operands have the same scale, and each result is one
    of them.
    """

    template = "elementwise/extremum_dsp.c.j2"
    fields = declare(
        *LOOP_FIELDS,
    )
    code = 100

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else super().supports(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        return self.call(layer, (("largest", self.op is Maximum),), {})


@register
class MaximumDsp(_Extremum):
    """Larger byte of each pair of int8 elements."""

    name = "s8_maximum__dsp"
    op = Maximum


@register
class MinimumDsp(_Extremum):
    """Smaller byte of each pair of int8 elements."""

    name = "s8_minimum__dsp"
    op = Minimum
