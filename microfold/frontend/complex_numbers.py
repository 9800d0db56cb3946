"""Representation of complex numbers: float32 values with a last axis of two, real and imaginary part.

During the import, a placeholder value with the shape in the file stands for the parts. If an operator moves
elements of a placeholder, `with_parts` returns the operator for the parts. Graphs contain parts only.
"""

from __future__ import annotations

from microfold.frontend.schema import operator_names
from microfold.ir.op import Op
from microfold.ops.elementwise.select import Select
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.signal.complex_numbers import PARTS

COMPLEX_NAME = "COMPLEX64"  # name of the type in the file format

# Operators of the file format that read or return complex numbers.
COMPLEX = operator_names(
    *("RFFT2D", "COMPLEX_ABS", "REAL", "IMAG", "MUL", "CAST", "SHAPE", "RANK"),
    *("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "SLICE", "STRIDED_SLICE", "TRANSPOSE", "TILE", "BROADCAST_TO"),
    *("SELECT", "SELECT_V2"),
)


def with_parts(op: Op) -> Op | None:
    """Return the operator on parts that is equivalent to an operator on complex numbers, or None.

    The last axis of the parts holds the real and the imaginary part.
    """
    match op:
        case Reshape():
            return Reshape((*op.shape, PARTS))
        case BroadcastTo():
            return BroadcastTo((*op.shape, PARTS))
        case StridedSlice():
            return StridedSlice((*op.begin, 0), (*op.size, PARTS), (*op.strides, 1))
        case Transpose():
            return Transpose((*op.permutation, len(op.permutation)))
        case Concatenate() | Select():
            return op
        case _:
            return None
