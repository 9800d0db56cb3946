"""Importers of operators on diagonals of matrices: MATRIX_DIAG, MATRIX_SET_DIAG."""

from __future__ import annotations

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.ops.elementwise.select import Select
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice


@imports("MATRIX_DIAG")
def matrix_diag(context: OperatorContext) -> None:
    """Turn vectors [n] into diagonals: in rows of n + 1 elements, each starts one column further right."""
    x, name = context.input(0), context.name()
    x = context.with_declared_scale(x)
    if x.type.rank < 1:
        raise Unsupported(f"its input must have an axis; it is {x.type}")
    *outer, n = x.type.shape
    whole = ((0, 0),) * len(outer)
    (x,) = context.emit(Reshape((*outer, n, 1)), x, names=[f"{name}_column"])
    (x,) = context.emit(Pad((*whole, (0, 0), (0, n)), 0.0), x, names=[f"{name}_rows"])
    (x,) = context.emit(Reshape((*outer, n * (n + 1))), x, names=[f"{name}_run"])
    shape = (*outer, n * n)
    op = StridedSlice((0,) * len(shape), shape, (1,) * len(shape))
    (x,) = context.emit(op, x, names=[f"{name}_flat"])
    context.finish(*context.emit(Reshape((*outer, n, n)), x))


@imports("MATRIX_SET_DIAG")
def matrix_set_diag(context: OperatorContext) -> None:
    """Replace the diagonals of matrices, by an elementwise selection."""
    x, diagonal, name = context.input(0), context.input(1), context.name()
    x, diagonal = (context.with_declared_scale(value) for value in (x, diagonal))
    if x.type.rank < 2:
        raise Unsupported(f"its input must be matrices; it is {x.type}")
    *outer, rows, columns = x.type.shape
    length = min(rows, columns)
    if diagonal.type.shape != (*outer, length):
        raise Unsupported(f"the diagonals of {x.type} must be {[*outer, length]}; they are {diagonal.type}")
    # The diagonal has the length of the shorter axis, and is broadcast along the other one.
    spread = (*outer, 1, columns) if columns <= rows else (*outer, rows, 1)
    (diagonal,) = context.emit(Reshape(spread), diagonal, names=[f"{name}_diagonal"])
    mask = context.add_constant(np.eye(rows, columns, dtype=bool), f"{name}_mask")
    context.finish(*context.emit(Select(), mask, diagonal, x))
