"""Importers of reductions of slices with equal segment ids: SEGMENT_SUM, UNSORTED_SEGMENT_SUM …"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.operators.movement.shapes import one
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.types import DType
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.scatter_nd import ScatterNd
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.reduce.mean import Sum
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin, ReduceProd


def _require_plain(x: Value) -> None:
    if x.type.dtype not in (DType.INT32, DType.FLOAT32):
        raise Unsupported(f"its input must be int32 or float32; it is {x.type}")


@imports("SEGMENT_SUM")
def segment_sum(context: OperatorContext) -> None:
    """Compute the sums of adjacent slices with equal ids."""
    x, name = context.input(0), context.name()
    segments = context.integers(1, "segment ids")
    _require_plain(x)
    if x.type.rank < 1 or not segments or len(segments) != x.type.shape[0]:
        raise Unsupported(f"each slice of {x.type} must have a segment id; it has {len(segments)} ids")
    if segments[0] != 0 or not all(b - a in (0, 1) for a, b in pairwise(segments)):
        raise Unsupported(f"segment ids must begin with 0, and increase by 0 or 1; they are {list(segments)}")
    rest = x.type.shape[1:]
    parts: list[Value] = []
    for segment in range(segments[-1] + 1):
        begin, count = (segments.index(segment), *(0,) * len(rest)), segments.count(segment)
        op = StridedSlice(begin, (count, *rest), (1,) * x.type.rank)
        (part,) = context.emit(op, x, names=[f"{name}_slices{segment}"])
        parts += context.emit(Sum((0,), True, x.type.element), part, names=[f"{name}_segment{segment}"])
    context.finish(*context.emit(Concatenate(0), *parts))


@imports("UNSORTED_SEGMENT_SUM")
def unsorted_segment_sum(context: OperatorContext) -> None:
    """Compute the sums of slices with equal ids. Slices with a negative id are ignored."""
    x, segments, count, rest = _unsorted(context)
    (positions,) = context.emit(
        Reshape((*segments.type.shape, 1)), segments, names=[f"{context.name()}_positions"]
    )
    context.finish(*context.emit(ScatterNd((count, *rest)), positions, x))


# Reduction of the slices of a segment, and the result of an empty segment.
_REDUCTIONS: dict[str, tuple[Callable[[tuple[int, ...], bool], Op], Callable[[DType], float]]] = {
    "UNSORTED_SEGMENT_MAX": (ReduceMax, lambda dtype: _limits(dtype)[0]),
    "UNSORTED_SEGMENT_MIN": (ReduceMin, lambda dtype: _limits(dtype)[1]),
    "UNSORTED_SEGMENT_PROD": (ReduceProd, lambda _: 1),
}


def _limits(dtype: DType) -> tuple[float, float]:
    if dtype.is_integer:
        return dtype.range
    largest = float(np.finfo(np.float32).max)
    return -largest, largest


@imports(*_REDUCTIONS)
def unsorted_segments(context: OperatorContext) -> None:
    """Gather and reduce the slices of each segment."""
    x, segments, count, rest = _unsorted(context)
    numbers, name = np.array(context.integers(1, "segment ids")), context.name()
    reduction, empty = _REDUCTIONS[context.raw.name]
    (x,) = context.emit(Reshape((segments.type.size, *rest)), x, names=[f"{name}_slices"])
    parts: list[Value] = []
    for segment in range(count):
        (found,) = np.nonzero(numbers == segment)
        if not found.size:
            filled = np.full((1, *rest), empty(x.type.dtype), x.type.dtype.numpy)
            parts.append(context.add_constant(filled, f"{name}_segment{segment}"))
            continue
        indices = context.add_constant(found.astype(np.int32), f"{name}_indices{segment}")
        (part,) = context.emit(Gather(0), x, indices, names=[f"{name}_slices{segment}"])
        parts += context.emit(reduction((0,), True), part, names=[f"{name}_segment{segment}"])
    context.finish(*context.emit(Concatenate(0), *parts))


def _unsorted(context: OperatorContext) -> tuple[Value, Value, int, tuple[int, ...]]:
    """Return the values, the segment id of each slice, the number of segments, and a slice's shape."""
    x, segments = context.input(0), context.input(1)
    rank = segments.type.rank
    if context.known(2) is None:
        count, *_ = context.static_shape("number of segments", max(x.type.rank - rank + 1, 1))
    else:
        (count,) = one(context.shape(2, "number of segments"), "number of segments")
    _require_plain(x)
    if rank < 1 or x.type.shape[:rank] != segments.type.shape or not math.prod(segments.type.shape):
        raise Unsupported(f"each slice of {x.type} must have a segment id; the ids are {segments.type}")
    numbers = context.known(1)
    if numbers is not None and int(numbers.max()) >= count:
        raise Unsupported(f"segment ids must be less than {count}; the largest is {int(numbers.max())}")
    return x, segments, count, x.type.shape[rank:]
