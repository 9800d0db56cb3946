"""Elementwise operators of an int8 tensor and a constant number, by a table over the other operand."""

from __future__ import annotations

import numpy as np

from microfold.ir.op import Op
from microfold.ir.types import Array, Tensor, TensorType
from microfold.kernels.elementwise.table import TableKernel, TableMve
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.quantized_div import QuantizedDiv
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub


class _ConstantOperand(Kernel):
    """Mixin of both variants; it precedes their base class.

    `results` evaluates the operator with its constant for all 256 values of the other operand. Therefore the
    table contains the reference's results.
    """

    trades = frozenset({ResourceTradeoff.TABLE})

    def supports(self, layer: LayerContext) -> str | None:
        index = _constant_scalar(layer)
        if index is None:
            return "it needs one operand that is a single constant number"
        size = layer.node.outputs[0].type.size
        if self.operand(layer).size != size:
            return "the other operand must not broadcast"
        return super().supports(layer)

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (1 - (_constant_scalar(layer) or 0),)

    def operand(self, layer: LayerContext) -> TensorType:
        return layer.node.operands[self.data_inputs(layer)[0]].type

    def results(self, layer: LayerContext) -> Array:
        constant, varying = _constant_scalar(layer), self.operand(layer)
        assert constant is not None
        array = layer.array(constant)
        assert array is not None
        low, high = varying.dtype.range
        values = np.arange(low, high + 1).astype(varying.dtype.numpy)
        operands = [
            Tensor(varying.with_shape(values.shape), values),
            Tensor(layer.node.operands[constant].type.with_shape((1,)), array.reshape(1)),
        ]
        (result,) = layer.node.op.evaluate(operands if constant == 1 else operands[::-1])
        return result.data


def _constant_scalar(layer: LayerContext) -> int | None:
    """Return the index of the operand that is a constant number, if the other one is computed; else None."""
    arrays = [layer.array(index) for index in (0, 1)]
    for index, (array, other) in enumerate((arrays, arrays[::-1])):
        if array is not None and array.size == 1 and other is None:
            return index
    return None


def _define(operator: type[Op], portable_name: str, mve_name: str) -> None:
    for base, name, variant, how in (
        (TableKernel, portable_name, "c", "one by one"),
        (TableMve, mve_name, "mve", "sixteen at a time"),
    ):
        bases = (_ConstantOperand, base)
        attributes = {
            "__doc__": f"{operator.__name__} of int8 elements and a constant number, {how}, by a table.",
            "name": name,
            "like": f"s8_mul__{variant}_constant" if operator is QuantizedDiv else None,
            "op": operator,
        }
        register(type(f"{operator.__name__}Constant{variant.title()}", bases, attributes))


_define(Add, "s8_add__c_constant", "s8_add__mve_constant")
_define(Maximum, "s8_maximum__c_constant", "s8_maximum__mve_constant")
_define(Minimum, "s8_minimum__c_constant", "s8_minimum__mve_constant")
_define(Mul, "s8_mul__c_constant", "s8_mul__mve_constant")
_define(Prelu, "s8_prelu__c_constant", "s8_prelu__mve_constant")
_define(QuantizedDiv, "s8_quantized_div__c_constant", "s8_quantized_div__mve_constant")
_define(SquaredDifference, "s8_squared_difference__c_constant", "s8_squared_difference__mve_constant")
_define(Sub, "s8_sub__c_constant", "s8_sub__mve_constant")
