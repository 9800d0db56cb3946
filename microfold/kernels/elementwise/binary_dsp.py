"""Products and extrema of int8 with DSP instructions: four elements in a word."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.types import DType
from microfold.kernels.call import KernelCall
from microfold.kernels.elementwise.binary import QuantizedMul
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS, BinaryKernel
from microfold.kernels.fields import declare
from microfold.kernels.kernel import register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.multiply_high import RequantizeForm
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul


class WordKernel(BinaryKernel):
    """Base of kernels of int8 that compute a group of elements at once, and the rest one by one.

    Class attributes:
        group: elements of a group.
        saved_instructions: per element, for an operand that stays the same.
        rest_instructions: per element of the rest.
        clamp_instructions: per element, for limits within those of int8.
    """

    features = frozenset({"dsp"})
    dtype = DType.INT8
    group: ClassVar[int] = 4
    saved_instructions: ClassVar[float] = 0.5
    rest_instructions: ClassVar[float]
    clamp_instructions: ClassVar[float] = 5.5

    def cost(self, layer: LayerContext) -> float:
        *outer, (length, *steps) = self.loops(layer)
        clamp, _ = output_range.clamping(layer.node)
        rest = length % self.group
        each = self.instructions - self.saved_instructions * steps.count(0)
        run = (length - rest) * each + rest * self.rest_instructions
        run += self.run_instructions if outer else 0.0
        run += self.clamp_instructions * length if clamp else 0.0
        return layer.node.outputs[0].type.size // length * run

    def cycles_per_instruction(self, layer: LayerContext) -> float:
        # The loops around it have many jumps.
        return 1.1 if len(self.loops(layer)) == 1 else 1.4


@register
class MulInt8Dsp(QuantizedMul, WordKernel):
    """Four products at a time: SXTAB16 widens and centres two bytes of a word in one instruction.

    The halves are multiplied and requantised one by one. `QuantizedMul.plan` proves the form that
    requantises; short ones take four times the product.
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
    instructions = 10.75
    saved_instructions = 0.0
    rest_instructions = 16.0
    run_instructions = 45.0

    def cost(self, layer: LayerContext) -> float:
        saved = 2.0 if self.plan(layer)[0] == RequantizeForm.SHORT_RELU.value else 0.0
        return super().cost(layer) - saved * layer.node.outputs[0].type.size


class _Extremum(WordKernel):
    """Four bytes at a time: SSUB8 compares the bytes of two words, SEL takes the larger or the others.

    No constants, and no rounding: the operands have one scale, and the result is one of them.
    """

    template = "elementwise/extremum_dsp.c.j2"
    fields = declare(
        *LOOP_FIELDS,
    )
    code = 100
    instructions = 2.5
    rest_instructions = 10.0
    run_instructions = 19.0

    def supports(self, layer: LayerContext) -> str | None:
        return "it fuses nothing" if layer.node.epilogue else super().supports(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        return self.call(layer, (("largest", self.op is Maximum),), {})


@register
class MaximumDsp(_Extremum):
    """The larger one of each two bytes."""

    name = "s8_maximum__dsp"
    op = Maximum


@register
class MinimumDsp(_Extremum):
    """The smaller one of each two bytes."""

    name = "s8_minimum__dsp"
    op = Minimum
