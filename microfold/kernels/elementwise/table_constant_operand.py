"""Multiplication of an int8 tensor by a constant number, by a table over the tensor's values."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array, Tensor, TensorType
from microfold.kernels.elementwise.table import TableKernel, TableMve
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.ops.elementwise.mul import Mul


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


@register
class MulConstant(_ConstantOperand, TableKernel):
    """Products of int8 elements and a constant number, one by one, by a table."""

    name = "s8_mul__c_constant"
    op = Mul


@register
class MulConstantMve(_ConstantOperand, TableMve):
    """Products of int8 elements and a constant number, sixteen at a time, by a table."""

    name = "s8_mul__mve_constant"
    op = Mul
