"""Addition through CMSIS-NN."""

from __future__ import annotations

from microfold.external.cmsis_nn.library import CMSIS_NN
from microfold.ir.types import DType
from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.elementwise.add import quantized_parameters
from microfold.kernels.fields import declare
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.add import Add


class ElementwiseAddS8(Kernel):
    """Addition of two values of equal shape, or of a value to itself."""

    name = "s8_add__cmsis_nn"
    op = Add
    fields = declare(
        "count",
        "left_shift",
        "first_offset",
        "first_multiplier",
        "first_shift",
        "second_offset",
        "second_multiplier",
        "second_shift",
        "output_offset",
        "output_multiplier",
        "output_shift",
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        first, second = layer.node.operands[:2]
        if first.type.dtype is not DType.INT8 or layer.node.outputs[0].type.dtype is not DType.INT8:
            return f"operands and output must be int8; the first operand is {first.type.dtype.value}"
        if first.type.shape != second.type.shape:
            return f"the shapes must be equal; the operands are {first.type} and {second.type}"
        if layer.array(0) is not None or layer.array(1) is not None:
            return "no operand may be constant"
        reason = output_range.unsupported_epilogue(layer.node)
        if reason is None and quantized_parameters(layer).output.shift > 0:
            return "the output's scale must be larger than 2^-19 times the larger operand's scale"
        return reason

    def lower(self, layer: LayerContext) -> KernelCall:
        first, second = layer.node.operands[:2]
        out = layer.node.outputs[0].type
        assert first.type.quant is not None and second.type.quant is not None and out.quant is not None
        scales = quantized_parameters(layer)
        low, high = output_range.integer_bounds(layer.node)
        parameters: dict[str, Parameter] = {
            "count": out.size,
            "left_shift": scales.left_shift,
            "first_offset": -first.type.quant.zero_point,
            "first_multiplier": scales.first.mantissa,
            "first_shift": scales.first.shift,
            "second_offset": -second.type.quant.zero_point,
            "second_multiplier": scales.second.mantissa,
            "second_shift": scales.second.shift,
            "output_offset": out.quant.zero_point,
            "output_multiplier": scales.output.mantissa,
            "output_shift": scales.output.shift,
            "output_minimum": low,
            "output_maximum": high,
        }
        spec = (("doubled", first is second),)
        function = CFunction(
            "external/cmsis_nn/add.c.j2", self.name, spec, self.fields, CMSIS_NN, ("arm_elementwise_add_s8",)
        )
        return KernelCall(function, parameters)
