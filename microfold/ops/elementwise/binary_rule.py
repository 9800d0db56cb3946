"""Type rules of elementwise operators with two operands."""

from __future__ import annotations

import numpy as np

from microfold.ir.op import require
from microfold.ir.types import DType, ElementType, TensorType

DTYPES = (DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.FLOAT16, DType.FLOAT32)


def broadcast_shape(op: str, *operands: TensorType) -> tuple[int, ...]:
    """Return the shape to which all operands broadcast.

    Raises:
        TypeRuleError: the operands do not broadcast.
    """
    try:
        return tuple(np.broadcast_shapes(*(operand.shape for operand in operands)))
    except ValueError:
        shapes = " and ".join(str(list(operand.shape)) for operand in operands)
        require(False, f"{op}: the shapes {shapes} do not broadcast")
        raise


def check_binary(
    op: str, first: TensorType, second: TensorType, out: ElementType, dtypes: tuple[DType, ...] = DTYPES
) -> TensorType:
    """Check equal element types, with int8 and int16 quantised per tensor; return the result's type."""
    shape = broadcast_shape(op, first, second)
    require(
        first.dtype is second.dtype is out.dtype,
        f"{op}: operands and result must have one element type; they are {first.dtype.value}, "
        f"{second.dtype.value} and {out.dtype.value}",
    )
    require(first.dtype in dtypes, f"{op}: {first.dtype.value} is not supported")
    if first.dtype in (DType.INT8, DType.INT16):
        for quant in (first.quant, second.quant, out.quant):
            require(
                quant is not None and quant.axis is None, f"{op}: all values must have one scale per tensor"
            )
    return TensorType(out.dtype, shape, out.quant)


def check_alike(op: str, first: TensorType, second: TensorType) -> TensorType:
    """Check equal element types and quantisations; return the result's type, which has the same ones."""
    shape = broadcast_shape(op, first, second)
    require(
        first.element == second.element,
        f"{op}: operands must have one element type and quantisation; they have {first.element} "
        f"and {second.element}",
    )
    return first.with_shape(shape)
