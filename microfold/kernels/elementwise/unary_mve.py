"""Elementwise kernels of one operand with float32 results, with Helium: four elements at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from microfold.ir.op import Op
from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms, vector_terms
from microfold.kernels.elementwise.binary import C_TYPES, DequantizePortable, UnaryKernel
from microfold.kernels.fields import declare
from microfold.kernels.kernel import define, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.hard_swish import HardSwish
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.unary import Unary

# Elements per vector.
_LANES = 4
# Smaller floats are denormal; vector instructions flush them to 0.
SMALLEST_NORMAL = float(np.finfo(np.float32).smallest_normal)
# C expressions of the vector x.
_FUNCTIONS: Mapping[type[Op] | str, str] = {
    Abs: "vabsq_f32(x)",
    LeakyRelu: "vpselq_f32(x, vmulq_n_f32(x, alpha), vcmpgtq_n_f32(x, 0.0f))",
    # A multiplication by 1 / 6, although the reference's last step is a division by 6.
    HardSwish: "vmulq_n_f32(vmulq_f32(x, vminnmq_f32(vmaxnmq_f32(vaddq_n_f32(x, 3.0f), vdupq_n_f32(0.0f)), "
    "vdupq_n_f32(6.0f))), 1.0f / 6.0f)",
    "neg": "vnegq_f32(x)",
    "square": "vmulq_f32(x, x)",
}
_DEQUANTIZE = "vmulq_n_f32(vcvtq_f32_s32(vsubq_n_s32(x, zero_point)), scale)"


class _UnaryMve(UnaryKernel):
    """Base class of kernels with one C expression of a vector x of four elements; the tail is predicated.

    The kernels have no tables; scale, zero point and slope are fields of the layer.
    """

    features = frozenset({"mve_fp"})
    fields = declare(
        "length",
        "zero_point",
        "scale",
        "alpha",
        *output_range.LIMIT_FIELDS,
    )

    def terms(self, layer: LayerContext) -> Terms:
        size, (clamp, _) = layer.node.outputs[0].type.size, output_range.clamping(layer.node)
        vectors = vector_terms(1, size, _LANES)
        named = {f"{self.function(layer)}_{name}": count for name, count in vectors.items()}
        return Terms(call=1, clamped=-(-size // _LANES) * clamp) + named

    def function(self, layer: LayerContext) -> str:
        """Return the name of the computed function, for kernels that have several."""
        return "element"

    def vector_call(
        self, layer: LayerContext, expression: str, fields: Mapping[str, Parameter]
    ) -> KernelCall:
        """Return the call of the loop around an expression."""
        x = layer.node.operands[0].type
        clamp, limits = output_range.clamping(layer.node)
        spec = (
            ("input_type", C_TYPES[x.dtype]),
            ("expression", expression),
            ("alpha", "alpha" in fields),
            ("tail", x.size % _LANES != 0),
            ("clamp", clamp),
        )
        length: dict[str, Parameter] = {"length": x.size}
        return KernelCall(
            CFunction("elementwise/unary_f32_mve.c.j2", self.name, spec, self.fields),
            length | dict(fields) | limits,
        )


class _FloatMve(_UnaryMve):
    """Expressions of `_FUNCTIONS` for float32 vectors, by operator or by the name of its function."""

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not DType.FLOAT32:
            return f"it needs float32; got {x.dtype.value}"
        if not self._expression(layer):
            return f"it does not support this function: {layer.node.op}"
        return super().supports(layer)

    def function(self, layer: LayerContext) -> str:
        op = layer.node.op
        return op.function if isinstance(op, Unary) else super().function(layer)

    def _expression(self, layer: LayerContext) -> str:
        op = layer.node.op
        return _FUNCTIONS.get(op.function if isinstance(op, Unary) else type(op), "")

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        fields: dict[str, Parameter] = {"alpha": float(op.alpha)} if isinstance(op, LeakyRelu) else {}
        return self.vector_call(layer, self._expression(layer), fields)


@register
class DequantizeMve(_UnaryMve, DequantizePortable):
    """``(x - zero_point) * scale`` of int8 and int16, widened by loads; differences are exact in float32."""

    name = "dequantize__mve"

    def supports(self, layer: LayerContext) -> str | None:
        if layer.node.operands[0].type.dtype not in (DType.INT8, DType.INT16):
            return "it supports only int8 and int16"
        quant = layer.node.operands[0].type.quant
        if quant is not None and min(quant.scales) < SMALLEST_NORMAL:
            return "vector instructions flush denormal scales and results to 0"
        return DequantizePortable.supports(self, layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x = layer.node.operands[0].type
        assert x.quant is not None
        fields: dict[str, Parameter] = {"zero_point": x.quant.zero_point, "scale": float(x.quant.scale)}
        return self.vector_call(layer, _DEQUANTIZE, fields)


for _operator, _name in (
    (Abs, "f32_abs__mve"),
    (HardSwish, "f32_hard_swish__mve"),
    (LeakyRelu, "f32_leaky_relu__mve"),
    (Unary, "f32_unary__mve"),
):
    _doc = f"{_operator.__name__} of float32, four elements at a time, by intrinsics."
    define(_FloatMve, _name, _operator, _doc)
