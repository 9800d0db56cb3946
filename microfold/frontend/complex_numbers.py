"""Complex numbers of a file: float32 values with a last axis of two, the real and the imaginary part.

While operators are imported, a value of the shape that the file has stands in for the parts. Operators that
only move elements move stand-ins, and `with_parts` says what that is to the parts. Graphs have parts only.
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

COMPLEX_NAME = "COMPLEX64"  # of their type in the format

# Operators of the file format that take or give complex numbers.
COMPLEX = operator_names(
    *("RFFT2D", "COMPLEX_ABS", "REAL", "IMAG", "MUL", "CAST", "SHAPE", "RANK"),
    *("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "SLICE", "STRIDED_SLICE", "TRANSPOSE", "TILE", "BROADCAST_TO"),
    *("SELECT", "SELECT_V2"),
)


def with_parts(op: Op) -> Op | None:
    """Return the operator that does to parts as this one does to complex numbers; None if there is none.

    The axis of parts is the last one.
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
