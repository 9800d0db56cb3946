"""Expressions of float32 elements: one loop over all operands, with intermediate values in registers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from msgspec import Struct

from microfold.ir.node import Node
from microfold.ir.types import DType
from microfold.kernels import names
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms, vector_terms
from microfold.kernels.elementwise import float_expressions
from microfold.kernels.elementwise.binary import C_TYPES, QUANTIZE_FIELDS, quantization
from microfold.kernels.elementwise.broadcast import (
    OUTER_LOOPS,
    broadcast_strides,
    loop_records,
    merge_axes,
)
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.elementwise.expression import Expression

# C expressions of the element x, or of a and b, with the numbers p and q of the step.
_SCALAR: Mapping[str, str] = {
    **{names.operator(kernel): text for kernel, text in float_expressions.BINARY.items()},
    **float_expressions.UNARY,
    **float_expressions.ACTIVATIONS,
    "leaky_relu": "x > 0.0f ? x : x * p",
    "clip": "mf_clamp_float(x, p, q)",
    "limited": "mf_clamp_float(x, 0.0f, p)",
    "lower": "x < p ? p : x",
    "relu": "x < 0.0f ? 0.0f : x",
    "upper": "x > p ? p : x",
    "copy": "x",
    "dequantize": "(float)(x - z) * p",
}
# C expressions of vectors of four elements.
_VECTOR: Mapping[str, str] = {
    "abs": "vabsq_f32(x)",
    "add": "vaddq_f32(a, b)",
    "clip": "vminnmq_f32(vmaxnmq_f32(x, vdupq_n_f32(p)), vdupq_n_f32(q))",
    "copy": "x",
    # A multiplication by 1 / 6, although the reference's last step is a division by 6.
    "hard_swish": "vmulq_n_f32(vmulq_f32(x, vminnmq_f32(vmaxnmq_f32("
    "vaddq_n_f32(x, 3.0f), vdupq_n_f32(0.0f)), vdupq_n_f32(6.0f))), 1.0f / 6.0f)",
    "leaky_relu": "vpselq_f32(x, vmulq_n_f32(x, p), vcmpgtq_n_f32(x, 0.0f))",
    "limited": "vminnmq_f32(vmaxnmq_f32(x, vdupq_n_f32(0.0f)), vdupq_n_f32(p))",
    "lower": "vmaxnmq_f32(x, vdupq_n_f32(p))",
    "maximum": "vmaxnmq_f32(a, b)",
    "minimum": "vminnmq_f32(a, b)",
    "mul": "vmulq_f32(a, b)",
    "neg": "vnegq_f32(x)",
    "prelu": "vpselq_f32(a, vmulq_f32(a, b), vcmpgeq_n_f32(a, 0.0f))",
    "relu": "vmaxnmq_f32(x, vdupq_n_f32(0.0f))",
    "square": "vmulq_f32(x, x)",
    "squared_difference": "vmulq_f32(vsubq_f32(a, b), vsubq_f32(a, b))",
    "sub": "vsubq_f32(a, b)",
    "upper": "vminnmq_f32(x, vdupq_n_f32(p))",
}
# Functions that end with a product, which compilers might fuse with a sum that follows it.
_PRODUCTS = frozenset({"mul", "square", "squared_difference", "prelu", "leaky_relu", "dequantize"})
# Integer types with differences from a zero point that are exact in float.
NARROW = (DType.INT8, DType.UINT8, DType.INT16)
_NAMES = re.compile(r"\b[abxpqz]\b")


class ExpressionPart(Struct, frozen=True):
    """One function of an expression, in the form in which kernels compute it.

    Attributes:
        function: its name. A clip becomes ``clip`` (``limited`` from 0 on), ``lower`` (``relu`` at 0),
            ``upper`` or ``copy``, depending on its finite bounds.
        taken: indices of the values that it reads.
        numbers: its numbers, as indices into the numbers of the expression.
        zero_point: zero point of a dequantised operand, as an index into the zero points of the expression.
    """

    function: str
    taken: tuple[int, ...]
    numbers: tuple[int, ...]
    zero_point: int | None = None

    def text(self, expressions: Mapping[str, str]) -> str:
        """Return its C expression, with values v0, v1, … and numbers n0, n1, …"""
        values = [f"v{index}" for index in self.taken]
        names = dict(zip("ab" if len(values) == 2 else "x", values, strict=True))
        names |= dict(zip("pq", (f"n{index}" for index in self.numbers), strict=False))
        if self.zero_point is not None:
            names["z"] = f"z{self.zero_point}"
        return _NAMES.sub(lambda found: names[found[0]], expressions[self.function])


def parts(node: Node) -> tuple[list[ExpressionPart], list[float], list[int]]:
    """Return the functions of an expression, and the numbers and zero points that they use, each once."""
    assert isinstance(node.op, Expression)
    numbers: dict[float, int] = {}
    zero_points: dict[int, int] = {}
    found: list[ExpressionPart] = []
    for function, taken, given in node.op.steps:
        zero_point: int | None = None
        if function == "clip":
            function, given = _clip(*given)
        elif function == "dequantize":
            quant = node.operands[taken[0]].type.quant
            assert quant is not None
            zero_point = zero_points.setdefault(quant.zero_point, len(zero_points))
            given = (float(quant.scale),)
        own = tuple(numbers.setdefault(number, len(numbers)) for number in given)
        found.append(ExpressionPart(function, taken, own, zero_point))
    return found, [*numbers], [*zero_points]


def _clip(low: float, high: float) -> tuple[str, tuple[float, ...]]:
    """Return the function of a clip, which depends on its bounds, and its numbers."""
    if (low, high) == (0.0, math.inf):
        return "relu", ()
    if low == 0.0 < high < math.inf:
        return "limited", (high,)
    if math.isfinite(low) and math.isfinite(high):
        return "clip", (low, high)
    if math.isfinite(low):
        return "lower", (low,)
    return ("upper", (high,)) if math.isfinite(high) else ("copy", ())


class ExpressionKernel(Kernel):
    """Base class of kernels that loop over operands with broadcasting, and compute each element step by step.

    Class attributes:
        template: path of the C template.
        expressions: C expression of each supported function.
        integers: integer types of operands that it dequantises, and of results that it quantises.
    """

    op = Expression
    code = 200
    fields = declare(
        Field("length", "size of the innermost loop"),
        Field("loops", "the 3 outer loops: size, then each operand's step in elements"),
        Field("numbers", "numbers of the functions"),
        Field("zero_points", "zero points of dequantised operands"),
        *QUANTIZE_FIELDS,
    )
    integers: ClassVar[tuple[DType, ...]] = ()
    template: ClassVar[str]
    expressions: ClassVar[Mapping[str, str]]

    def supports(self, layer: LayerContext) -> str | None:
        for value in layer.node.operands:
            if value.type.dtype is not DType.FLOAT32 and (
                value.type.dtype not in self.integers
                or value.type.quant is None
                or value.type.quant.axis is not None
            ):
                return f"it does not support operands of {value.type}"
        if layer.node.output.type.dtype not in (DType.FLOAT32, *self.integers):
            return f"it does not support results of {layer.node.output.type.dtype.value}"
        for part in self.parts(layer):
            if part.function not in self.expressions:
                return f"it does not support the function {part.function}"
        if len(self.loops(layer)) > OUTER_LOOPS + 1:
            return "its operands broadcast along too many alternating axes"
        return "it does not support an epilogue" if layer.node.epilogue else None

    def parts(self, layer: LayerContext) -> list[ExpressionPart]:
        return parts(layer.node)[0]

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return tuple(range(len(layer.node.inputs)))

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        # All operands of an element are read before its result is written.
        operand, out = layer.node.operands[index].type, layer.node.outputs[0].type
        return 0 if operand.size == out.size and operand.dtype.itemsize >= out.dtype.itemsize else None

    def loops(self, layer: LayerContext) -> list[tuple[int, ...]]:
        """Return (size, step of each operand) of the loops, outermost first; steps in elements."""
        out = layer.node.outputs[0].type.shape
        return merge_axes(out, *(broadcast_strides(v.type.shape, out) for v in layer.node.operands))

    def spec(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        """Return the choices of the template in addition to the common ones."""
        return ()

    def lower(self, layer: LayerContext) -> KernelCall:
        found, numbers, zero_points = parts(layer.node)
        out = layer.node.output.type
        *outer, (length, *steps) = self.loops(layer)
        is_quantized = out.dtype is not DType.FLOAT32
        spec = (
            ("steps", tuple(steps)),
            ("types", ",".join(C_TYPES[value.type.dtype] for value in layer.node.operands)),
            ("result", C_TYPES[out.dtype]),
            ("statements", ";".join(self.statements(found, len(steps)))),
            ("numbers", len(numbers)),
            ("zero_points", len(zero_points)),
            ("nested", bool(outer)),
            ("math", any(float_expressions.calls_math(self.expressions[part.function]) for part in found)),
            *self.spec(layer),
        )
        parameters: dict[str, Parameter] = {"length": length}
        if outer:
            parameters["loops"] = Constant("loops", loop_records(outer, OUTER_LOOPS))
        if numbers:
            parameters["numbers"] = Constant("numbers", np.array(numbers, np.float32))
        if zero_points:
            parameters["zero_points"] = Constant("zero_points", np.array(zero_points, np.int32))
        if is_quantized:
            parameters |= quantization(out)
        return KernelCall(CFunction(self.template, self.name, spec, self.fields), parameters)

    def statements(self, found: Sequence[ExpressionPart], operands: int) -> Iterator[str]:
        """Yield the C statements that compute the values after the operands."""
        for index, part in enumerate(found, operands):
            text = part.text(self.expressions)
            is_rounded = part.function in _PRODUCTS and index < operands + len(found) - 1
            yield f"v{index} = {f'mf_rounded({text})' if is_rounded else text}"


@register
class ExpressionPortable(ExpressionKernel):
    """Expression element by element; each function is the C expression of its own kernel.

    A product is rounded before a sum uses it, so that the compiler cannot contract the two. Integers are
    dequantised when they are read. The result is quantised like by `QuantizePortable`.
    """

    name = "f32_expression__c"
    template = "elementwise/expression.c.j2"
    expressions = _SCALAR
    integers = NARROW

    def supports(self, layer: LayerContext) -> str | None:
        functions = {part.function for part in self.parts(layer)}
        if "mve_fp" in layer.target.features and functions <= _VECTOR.keys():
            return "the target has vector instructions for all of its functions"
        return super().supports(layer)

    def terms(self, layer: LayerContext) -> Terms:
        *outer, (length, *steps) = self.loops(layer)
        size = layer.node.outputs[0].type.size
        read = size * sum(step != 0 for step in steps)
        each = Terms(call=1, run=size // length if outer else 0, element=size, read=read)
        for part in self.parts(layer):
            each += Terms({part.function: size})
        return each + Terms(quantize=0 if layer.node.output.type.dtype is DType.FLOAT32 else size)

    def default_coefficient(self, term: str) -> float:
        # Most functions are calls of the C library.
        text = _SCALAR.get(term)
        if text is None:
            return 30.0 if term == "quantize" else super().default_coefficient(term)
        return 80.0 if float_expressions.calls_math(text) else 3.0


@register
class ExpressionMve(ExpressionKernel):
    """Expression of four elements at a time by intrinsics that round once; the tail is predicated."""

    name = "f32_expression__mve"
    template = "elementwise/expression_mve.c.j2"
    features = frozenset({"mve_fp"})
    expressions = _VECTOR

    def statements(self, found: Sequence[ExpressionPart], operands: int) -> Iterator[str]:
        for index, part in enumerate(found, operands):
            yield f"v{index} = {part.text(self.expressions)}"

    def spec(self, layer: LayerContext) -> tuple[tuple[str, SpecValue], ...]:
        return (("tail", self.loops(layer)[-1][0] % 4 != 0),)

    def terms(self, layer: LayerContext) -> Terms:
        *outer, (length, *steps) = self.loops(layer)
        runs = layer.node.outputs[0].type.size // length
        vectors = runs * -(-length // 4)
        kind = "tail_read" if length % 4 else "whole_read"
        each = Terms({"call": 1, "run": runs if outer else 0, kind: vectors * sum(s != 0 for s in steps)})
        for part in self.parts(layer):
            each += Terms({part.function: vectors})
        return each + vector_terms(runs, length, 4)

    def default_coefficient(self, term: str) -> float:
        return 2.0 if term in _VECTOR else super().default_coefficient(term)
