"""Elementwise kernels of one float32 operand in portable C: one C expression for each function."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms, length_prefix
from microfold.kernels.elementwise import float_expressions
from microfold.kernels.elementwise.binary import UnaryKernel
from microfold.kernels.fields import declare
from microfold.kernels.kernel import define, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.hard_swish import HardSwish
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.fake_quantize import FakeQuantize
from microfold.ops.elementwise.rsqrt import Rsqrt
from microfold.ops.elementwise.unary import Unary


class _Float(UnaryKernel):
    """One C expression of the element x, one element after the other; only the expression has constants."""

    fields = declare(
        "length",
        "alpha",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not DType.FLOAT32:
            return f"it needs float32; got {x.dtype.value}"
        if not self.expression(layer):
            return f"it does not support this function: {layer.node.op}"
        return super().supports(layer)

    def terms(self, layer: LayerContext) -> Terms:
        out, (clamp, _) = layer.node.outputs[0].type, output_range.clamping(layer.node)
        prefix = length_prefix(out.size, out.dtype, layer.target.features)
        return Terms({"call": 1, f"{prefix}{self.function(layer)}": out.size, "clamped": out.size * clamp})

    def function(self, layer: LayerContext) -> str:
        """Return the name of the computed function, for kernels that have several."""
        return "element"

    def default_coefficient(self, term: str) -> float:
        # Most functions are calls of the C library.
        return super().default_coefficient(term) if term in ("call", "clamped") else 80.0

    def expression(self, layer: LayerContext) -> str:
        raise NotImplementedError

    def parameters(self, layer: LayerContext) -> dict[str, Parameter]:
        """Return the fields that the expression uses."""
        return {}

    def lower(self, layer: LayerContext) -> KernelCall:
        clamp, limits = output_range.clamping(layer.node)
        expression = self.expression(layer)
        parameters = self.parameters(layer)
        spec = (
            ("expression", expression),
            ("math", float_expressions.calls_math(expression)),
            ("alpha", "alpha" in parameters),
            ("clamp", clamp),
        )
        length: dict[str, Parameter] = {"length": layer.node.outputs[0].type.size}
        return KernelCall(
            CFunction("elementwise/unary.c.j2", self.name, spec, self.fields), length | parameters | limits
        )


@register
class UnaryFloat(_Float):
    """Functions by name, see `float_expressions`."""

    name = "f32_unary__c"
    op = Unary

    def expression(self, layer: LayerContext) -> str:
        assert isinstance(layer.node.op, Unary)
        return float_expressions.UNARY.get(layer.node.op.function, "")

    def function(self, layer: LayerContext) -> str:
        assert isinstance(layer.node.op, Unary)
        return layer.node.op.function


@register
class LeakyReluFloat(_Float):
    """Leaky ReLU: elements that are not above 0 are multiplied by `alpha`, a field of the layer."""

    name = "f32_leaky_relu__c"
    op = LeakyRelu

    def expression(self, layer: LayerContext) -> str:
        return "x > 0.0f ? x : x * layer->alpha"

    def parameters(self, layer: LayerContext) -> dict[str, Parameter]:
        assert isinstance(layer.node.op, LeakyRelu)
        return {"alpha": float(layer.node.op.alpha)}


@register
class FakeQuantizeFloat(_Float):
    """Fake quantisation that counts steps from the lowest number; 1 / scale is one of the layer fields."""

    name = "f32_fake_quantize__c"
    op = FakeQuantize
    fields = (*_Float.fields, *declare("minimum", "maximum", "inverse", "scale"))

    def cost(self, layer: LayerContext) -> float:
        per_element = 15.0 if layer.target.has("fpu") else 235.0  # counted on Cortex-M4 and Cortex-M0+
        return 20 + per_element * layer.node.outputs[0].type.size

    def expression(self, layer: LayerContext) -> str:
        return "mf_fake_quantize(x, layer->minimum, layer->maximum, layer->inverse, layer->scale)"

    def parameters(self, layer: LayerContext) -> dict[str, Parameter]:
        assert isinstance(layer.node.op, FakeQuantize)
        minimum, maximum, scale = layer.node.op.steps()
        inverse = float(np.float32(1) / np.float32(scale))
        return {"minimum": minimum, "maximum": maximum, "inverse": inverse, "scale": scale}


class _FixedExpression(_Float):
    """Operators with one expression for all nodes.

    Class attributes:
        text: C expression of the element x.
    """

    text: ClassVar[str]

    def expression(self, layer: LayerContext) -> str:
        return self.text


for _operator, _name in (
    (Abs, "f32_abs__c"),
    (HardSwish, "f32_hard_swish__c"),
    (Logistic, "f32_logistic__c"),
    (Rsqrt, "f32_rsqrt__c"),
    (Tanh, "f32_tanh__c"),
):
    _text = float_expressions.ACTIVATIONS[_operator.name]
    _doc = f"{_operator.__name__} of float32: ``{_text}`` for each element x."
    define(_FixedExpression, _name, _operator, _doc, text=_text)
