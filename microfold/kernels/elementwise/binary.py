"""Elementwise kernels without tables: products, extrema, and arithmetic of floats and plain integers."""

from __future__ import annotations

from typing import ClassVar

from microfold.errors import DeclarationError
from microfold.ir.op import REGISTRY, Op
from microfold.ir.types import Array, DType, TensorType
from microfold.kernels import names
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms, length_prefix
from microfold.kernels.elementwise import float_expressions, plain_expressions
from microfold.kernels.elementwise.add import centred_hull, plan_short
from microfold.kernels.elementwise.broadcast import LOOP_FIELDS, BinaryKernel
from microfold.kernels.fields import Field, Fields, declare
from microfold.kernels.kernel import Kernel, define, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.quantized_div import QuantizedDiv

C_TYPES = {
    DType.BOOL: "uint8_t",
    DType.INT8: "int8_t",
    DType.UINT8: "uint8_t",
    DType.INT16: "int16_t",
    DType.INT32: "int32_t",
    DType.UINT32: "uint32_t",
    DType.INT64: "int64_t",
    DType.UINT64: "uint64_t",
    DType.FLOAT32: "float",
}


class QuantizedMul(BinaryKernel):
    """Products of centred elements, requantised by one multiplier.

    The constant `scale` is one record: (bias, multiplier, addend, shift). The extremes of the operands bound
    the products, and `plan_short` chooses the shortest form that is exact within these bounds.
    """

    template = "elementwise/mul.c.j2"
    fields = declare(
        "scale",
        "first_zero_point",
        "second_zero_point",
        *output_range.LIMIT_FIELDS,
        *LOOP_FIELDS,
    )

    def plan(self, layer: LayerContext) -> tuple[str, Array]:
        """Return the form of the requantisation, and its record."""
        first, second = (v.type.quant for v in layer.node.operands[:2])
        out = layer.node.outputs[0].type.quant
        assert first is not None and second is not None and out is not None and isinstance(layer.node.op, Mul)
        corners = [a * b for a in centred_hull(layer, 0) for b in centred_hull(layer, 1)]
        multiplier = layer.node.op.multiplier(first, second)
        return plan_short(layer, (min(corners), max(corners)), multiplier, out.zero_point)

    def terms(self, layer: LayerContext) -> Terms:
        return super().terms(layer) + Terms({self.plan(layer)[0]: layer.node.outputs[0].type.size})

    def lower(self, layer: LayerContext) -> KernelCall:
        first, second = (v.type.quant for v in layer.node.operands[:2])
        assert first is not None and second is not None
        form, records = self.plan(layer)
        clamp, limits = output_range.clamping(layer.node)
        fields: dict[str, Parameter] = {
            "scale": Constant("scale", records, record="mf_channel"),
            "first_zero_point": first.zero_point,
            "second_zero_point": second.zero_point,
        }
        spec = (("type", C_TYPES[self.dtype]), ("requantize", form), ("clamp", clamp))
        return self.call(layer, spec, fields | limits)


@register
class MulInt8(QuantizedMul):
    """Products of int8; cores without 64-bit products use the form of `plan_narrow` if it is exact."""

    name = "s8_mul__c"
    op = Mul
    dtype = DType.INT8


@register
class MulInt16(QuantizedMul):
    """Products of int16, of up to 32 bits before requantisation."""

    name = "s16_mul__c"
    op = Mul
    dtype = DType.INT16


class _QuantizedDiv(BinaryKernel):
    """Quotients of centred elements, by the reference's steps for each element.

    The reciprocal of the divisor needs three iterations of Newton's method. The only constant is the
    multiplier.
    """

    template = "elementwise/quantized_div.c.j2"
    fields = declare(
        Field("multiplier", "scale from quotients to units of the output"),
        "shift",
        "first_zero_point",
        "second_zero_point",
        "output_zero_point",
        *output_range.LIMIT_FIELDS,
        *LOOP_FIELDS,
    )

    def cost(self, layer: LayerContext) -> float:
        # Each quotient calls a function. Counted on Cortex-M4 and Cortex-M0+.
        per_quotient = 660.0 if layer.target.has("thumb1") else 150.0
        return 50 + per_quotient * layer.node.outputs[0].type.size

    def lower(self, layer: LayerContext) -> KernelCall:
        first, second = (v.type.quant for v in layer.node.operands[:2])
        out = layer.node.outputs[0].type.quant
        assert first is not None and second is not None and out is not None
        assert isinstance(layer.node.op, QuantizedDiv)
        mantissa, shift = layer.node.op.multiplier(first, second)
        clamp, limits = output_range.clamping(layer.node)
        fields: dict[str, Parameter] = {
            "multiplier": mantissa,
            "shift": shift,
            "first_zero_point": first.zero_point,
            "second_zero_point": second.zero_point,
            "output_zero_point": out.zero_point,
        }
        return self.call(layer, (("type", C_TYPES[self.dtype]), ("clamp", clamp)), fields | limits)


@register
class QuantizedDivInt8(_QuantizedDiv):
    """Quotients of int8."""

    name = "s8_quantized_div__c"
    op = QuantizedDiv
    dtype = DType.INT8


@register
class QuantizedDivUInt8(_QuantizedDiv):
    """Quotients of legacy uint8."""

    name = "u8_quantized_div__c"
    op = QuantizedDiv
    dtype = DType.UINT8


@register
class QuantizedDivInt16(_QuantizedDiv):
    """Quotients of int16."""

    name = "s16_quantized_div__c"
    op = QuantizedDiv
    dtype = DType.INT16


class _Arithmetic(BinaryKernel):
    """One C expression of the two elements, element by element.

    The kernel has no constants. Sums, differences and products of integers are computed as unsigned, so that
    they wrap around like the reference's. Floats may be clamped after the expression.

    Class attributes:
        expression: C expression of the elements a and b.
    """

    template = "elementwise/arithmetic.c.j2"
    fields = declare(
        *LOOP_FIELDS,
        *output_range.LIMIT_FIELDS,
    )
    expression: ClassVar[str]

    def supports(self, layer: LayerContext) -> str | None:
        quantized = any(v.type.quant is not None for v in layer.node.operands[:2])
        if quantized and not self.op.any_zero_point:
            return "it needs operands without quantisation; they are quantised"
        if layer.node.epilogue and not self.dtype.is_float:
            return "it does not support an epilogue"
        return super().supports(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        clamp, limits = output_range.clamping(layer.node) if self.dtype.is_float else (False, {})
        spec = (
            ("type", C_TYPES[self.dtype]),
            ("expression", self.expression),
            ("math", float_expressions.calls_math(self.expression)),
            ("clamp", clamp),
        )
        return self.call(layer, spec, limits)


def operator_of(kernel: str) -> type[Op]:
    """Return the operator of a kernel in a table of C expressions.

    Raises:
        DeclarationError: no operator has the name that the kernel's name contains.
    """
    name = names.operator(kernel)
    if name not in REGISTRY:
        raise DeclarationError(
            f"the name of a kernel in kernels/elementwise contains an operator's; there is no {name!r}, "
            f"which {kernel!r} contains: correct the name, or write its operator in microfold/ops/elementwise"
        )
    return REGISTRY[name]


# By the name of a kernel without measured cost terms, the kernel with about the same costs.
_LIKE = {
    **{f"s64_{name}__c": f"s32_{name}__c" for name in ("add", "sub", "mul")},
    "s32_squared_difference__c": "s32_mul__c",
    "u32_mul__c": "s32_mul__c",
    **{f"u8_{name}__c": f"s8_{name}__c" for name in ("maximum", "minimum", "bitwise_xor", "right_shift")},
    **{f"u32_{name}__c": f"s32_{name}__c" for name in ("bitwise_xor", "right_shift")},
}


def _define(name: str, expression: str) -> None:
    """Register a kernel of the C expression."""
    operator, dtype = operator_of(name), names.activation_type(name)
    doc = f"{operator.__name__} of {dtype.value}: ``{expression}`` for each a and b."
    define(_Arithmetic, name, operator, doc, like=_LIKE.get(name), dtype=dtype, expression=expression)


for _name, _expression in (float_expressions.BINARY | plain_expressions.PLAIN).items():
    _define(_name, _expression)


class UnaryKernel(Kernel):
    """Base class of elementwise kernels of one operand, which run in place if elements keep their size."""

    def supports(self, layer: LayerContext) -> str | None:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        for t in (x, out):
            if t.dtype not in C_TYPES:
                return f"it does not support {t.dtype.value}"
        return output_range.unsupported_epilogue(layer.node)

    def terms(self, layer: LayerContext) -> Terms:
        x, size = layer.node.operands[0].type, layer.node.outputs[0].type.size
        prefix = length_prefix(size, x.dtype, layer.target.features)
        return Terms({"call": 1, f"{prefix}{x.dtype.value}_element": size})

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        return 0 if out.dtype.itemsize == x.dtype.itemsize else None


def clip_fields(dtype: DType) -> Fields:
    """Return the fields of a separate clip, whose bounds have the type of the elements."""
    element = C_TYPES[dtype]
    return declare("length", Field("output_minimum", c_type=element), Field("output_maximum", c_type=element))


@register
class ClipPortable(UnaryKernel):
    """Clip that was not fused, one element after the other.

    The only constants are the bounds; for quantised elements they come from the operator's `bounds`.
    """

    name = "clip__c"
    op = Clip

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else super().supports(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x = layer.node.operands[0].type
        assert isinstance(layer.node.op, Clip)
        if x.dtype.is_float:
            low, high = layer.node.op.minimum, layer.node.op.maximum
        else:
            low, high = layer.node.op.bounds(x.element)
        parameters: dict[str, Parameter] = {"length": x.size, "output_minimum": low, "output_maximum": high}
        return KernelCall(
            CFunction(
                "elementwise/clip.c.j2", self.name, (("type", C_TYPES[x.dtype]),), clip_fields(x.dtype)
            ),
            parameters,
        )


QUANTIZE_FIELDS = declare(
    "zero_point",
    "half_scale",
    Field("minimum", "distance from the zero point, in half quantisation steps"),
    "maximum",
)


def quantization(out: TensorType, bounds: tuple[int, int] | None = None) -> dict[str, Parameter]:
    """Return the parameters of a step that quantises floats.

    The code divides by half of the scale, truncates to an integer, and halves it with rounding; halves are
    rounded away from zero. Twice a quotient is exact in float, and so are its bounds before the zero point is
    added.

    Args:
        bounds: smallest and largest result; default: the range of its type.
    """
    assert out.quant is not None
    low, high = bounds if bounds is not None else out.dtype.range
    zero_point = out.quant.zero_point
    return {
        "zero_point": zero_point,
        "half_scale": out.quant.scale / 2,
        "minimum": 2.0 * (low - zero_point),
        "maximum": 2.0 * (high - zero_point),
    }


@register
class QuantizePortable(UnaryKernel):
    """Quantisation of float32 with quotients by half of the scale, see `quantization`; NaN counts as 0."""

    name = "f32_quantize__c"
    op = Quantize
    fields = declare(
        "length",
        *QUANTIZE_FIELDS,
    )

    def lower(self, layer: LayerContext) -> KernelCall:
        out = layer.node.outputs[0].type
        bounds = output_range.integer_bounds(layer.node)
        parameters: dict[str, Parameter] = {"length": out.size, **quantization(out, bounds)}
        return KernelCall(
            CFunction(
                "elementwise/conversions/quantize.c.j2",
                self.name,
                (("type", C_TYPES[out.dtype]),),
                self.fields,
            ),
            parameters,
        )


@register
class DequantizePortable(UnaryKernel):
    """``(x - zero_point) * scale``, for types with differences that are exact in float32."""

    name = "dequantize__c"
    op = Dequantize
    fields = declare(
        "length",
        "zero_point",
        "scale",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.quant is not None and x.quant.axis is not None:
            return "it needs one scale per tensor"
        if x.dtype not in (DType.INT8, DType.UINT8, DType.INT16):
            return f"it does not support {x.dtype.value}, because differences are not exact in float32"
        return super().supports(layer)

    def lower(self, layer: LayerContext) -> KernelCall:
        x = layer.node.operands[0].type
        assert x.quant is not None
        clamp, limits = output_range.clamping(layer.node)
        parameters: dict[str, Parameter] = {
            "length": x.size,
            "zero_point": x.quant.zero_point,
            "scale": float(x.quant.scale),
        }
        spec = (("type", C_TYPES[x.dtype]), ("clamp", clamp))
        return KernelCall(
            CFunction("elementwise/conversions/dequantize.c.j2", self.name, spec, self.fields),
            parameters | limits,
        )


@register
class CastPortable(UnaryKernel):
    """C's conversion of each element; floats saturate at the limits of integer types, and NaN becomes 0."""

    name = "cast__c"
    op = Cast
    fields = declare(
        "length",
    )

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else super().supports(layer)

    def terms(self, layer: LayerContext) -> Terms:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        return Terms({"call": 1, f"{x.dtype.value}_to_{out.dtype.value}": out.size})

    def lower(self, layer: LayerContext) -> KernelCall:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        saturates = x.dtype.is_float and out.dtype.is_integer
        low, high = out.dtype.range if saturates else (0, 0)
        spec = (
            ("input_type", C_TYPES[x.dtype]),
            ("output_type", C_TYPES[out.dtype]),
            ("to_bool", out.dtype is DType.BOOL),
            ("saturates", saturates),
            ("lowest", low),
            ("highest", high),
        )
        return KernelCall(
            CFunction("elementwise/conversions/cast.c.j2", self.name, spec, self.fields), {"length": x.size}
        )
