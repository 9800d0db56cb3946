"""Arithmetic of float32 for floating-point units: four elements at a time, limits without branches."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op
from microfold.ir.types import DType
from microfold.kernels.call import KernelCall
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS, BinaryKernel
from microfold.kernels.fields import declare
from microfold.kernels.kernel import ResourceTradeoff, define
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing.float32_block import float_clamping
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.div import Div
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub


class _ArithmeticFpu(BinaryKernel):
    """Arithmetic of four elements between a VLDM and a VSTM, one instruction each; the tail one by one.

    Limits of 0 and above are applied in integer registers, without branches: the bits of non-negative floats
    have the order of their values. `supports` rejects all other limits. Each instruction rounds once, like
    the operation in C.

    Class attributes:
        operator: name of the instruction, or ``squared_difference``.
        expression: the operation as a C expression of the elements a and b.
    """

    template = "elementwise/arithmetic_fpu.c.j2"
    fields = declare(
        *LOOP_FIELDS,
        *output_range.LIMIT_FIELDS,
    )
    features = frozenset({"fpu", "thumb2"})
    trades = frozenset({ResourceTradeoff.UNROLLED})
    dtype = DType.FLOAT32
    operator: ClassVar[str]
    expression: ClassVar[str]

    def supports(self, layer: LayerContext) -> str | None:
        clamp_kind = float_clamping(layer)[0]
        if clamp_kind == "general":
            return "it supports only limits of 0 and above"
        if clamp_kind != "none" and self.op is Div:
            return "it clamps the bits of floats, but 0 / 0 is NaN"
        return super().supports(layer)

    def terms(self, layer: LayerContext) -> Terms:
        *outer, (length, *_) = self.loops(layer)
        size, clamp_kind = layer.node.outputs[0].type.size, float_clamping(layer)[0]
        runs = size // length
        # The last 0 to 3 elements of a run are computed one by one.
        each = Terms(call=1, run=runs if outer else 0, element=size, rest=runs * (length % 4))
        return each if clamp_kind == "none" else each + Terms({clamp_kind: size})

    def lower(self, layer: LayerContext) -> KernelCall:
        clamp_kind, limits = float_clamping(layer)
        spec = (("operator", self.operator), ("expression", self.expression), ("clamp_kind", clamp_kind))
        return self.call(layer, spec, limits)


def _define(name: str, operator: type[Op], expression: str) -> None:
    doc = f"{operator.__name__} of float32: ``{expression}`` for four elements a and b at a time."
    define(_ArithmeticFpu, name, operator, doc, operator=operator.name, expression=expression)


_define("f32_add__fpu", Add, "a + b")
_define("f32_sub__fpu", Sub, "a - b")
_define("f32_mul__fpu", Mul, "a * b")
_define("f32_div__fpu", Div, "a / b")
_define("f32_squared_difference__fpu", SquaredDifference, "(a - b) * (a - b)")
