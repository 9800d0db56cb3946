"""Importer of writes of one row of a list, which `frontend/list_writes.py` recognises."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.ir.types import DType
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.movement.dynamic_update_slice import DynamicUpdateSlice
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape


def list_write(context: OperatorContext) -> None:
    """Import a recognised list write of a row [1, …] into a list [n, …], at an index of one element."""
    whole, row, index, name = context.input(0), context.input(1), context.input(2), context.name()
    if row.type.shape != (1, *whole.type.shape[1:]):
        raise Unsupported(f"it must write one row of {whole.type}; it writes {row.type}")
    if index.type.dtype is not DType.INT32:
        (index,) = context.emit(Cast(DType.INT32), index, names=[f"{name}_row"])
    (start,) = context.emit(Reshape((1,)), index, names=[f"{name}_start"])
    if whole.type.rank > 1:
        (start,) = context.emit(Pad(((0, whole.type.rank - 1),), 0.0), start, names=[f"{name}_position"])
    context.finish(*context.emit(DynamicUpdateSlice(), whole, row, start))
