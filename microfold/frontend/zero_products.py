"""Products with constant real zeros: their results are zero for every scale and multiplier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from microfold.errors import TypeRuleError
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.types import MAX_SCALE, Array, ElementType, Quant, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.mul import Mul
from microfold.ops.fully_connected.fully_connected import FullyConnected

_PRODUCTS = (BatchMatmul, Conv2D, DepthwiseConv2D, FullyConnected, Mul, TransposeConv2D)


def zero_product(
    op: Op, inputs: Sequence[Value | None], constants: Mapping[Value, Array]
) -> TensorType | None:
    """Return the type of a quantised product if all its elements must be real zeros, else None.

    The multiplier of such a product may have no fixed-point form: if a quantiser has only seen zeros, the
    scale of the result can be denormal.
    """
    if not isinstance(op, _PRODUCTS) or op.out.quant is None:
        return None
    factors, bias = inputs[:2], inputs[2] if len(inputs) > 2 else None
    if not any(_is_zero(value, constants) for value in factors if value is not None):
        return None
    if bias is not None and (bias not in constants or constants[bias].any()):
        return None
    # With the largest scale of the result, every multiplier has a fixed-point form.
    largest = ElementType(op.out.dtype, Quant((MAX_SCALE,), op.out.quant.zero_points))
    try:
        (found,) = replace(op, out=largest).infer_all([None if v is None else v.type for v in inputs])
    except TypeRuleError:
        return None
    return found.with_element(op.out)


def _is_zero(value: Value, constants: Mapping[Value, Array]) -> bool:
    array, quant = constants.get(value), value.type.quant
    if array is None or quant is None:
        return False
    points = np.array(quant.zero_points)
    if quant.axis is not None:
        points = points.reshape([-1 if axis == quant.axis else 1 for axis in range(array.ndim)])
    return bool((array == points).all())
