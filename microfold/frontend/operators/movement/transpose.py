"""Importer of TRANSPOSE, also with a computed permutation."""

from __future__ import annotations

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType, Shape
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.mul import Mul
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose


@imports("TRANSPOSE")
def transpose(context: OperatorContext) -> None:
    x = context.input(0)
    x = context.with_declared_scale(x)
    if context.known(1) is not None:
        named = context.integers(1, "permutation")
        permutation = tuple(context.axis(axis, x.type.rank) for axis in named)
        context.finish(*context.emit(Transpose(permutation), x))
        return
    shape = context.static_shape("permutation", x.type.rank)
    if sorted(shape) != sorted(x.type.shape) or context.input(1).type.shape != (x.type.rank,):
        raise Unsupported(
            f"its result must have the axes of {x.type} in another order, given by {x.type.rank} numbers; "
            f"it is {list(shape)}, and they are {context.input(1).type}"
        )
    extents = [n for n in shape if n > 1]
    if len(set(extents)) == len(extents):
        context.finish(*context.emit(Transpose(_by_extents(x.type.shape, shape)), x))
    else:
        context.finish(_by_computed_order(context, x, shape))


def _by_extents(before: Shape, after: Shape) -> tuple[int, ...]:
    """Return the permutation between shapes whose extents are distinct, except for extents of 1."""
    left = list(range(len(before)))
    return tuple(left.pop(next(i for i, axis in enumerate(left) if before[axis] == n)) for n in after)


def _by_computed_order(context: OperatorContext, x: Value, shape: Shape) -> Value:
    """Gather the elements. The index of each is the sum of its coordinates times the permuted strides.

    `Gather` never reads outside of the value, even if the order is not a permutation.
    """
    order, name, rank = context.input(1), context.name(), x.type.rank
    if order.type.dtype is not DType.INT32:
        (order,) = context.emit(Cast(DType.INT32), order, names=[f"{name}_order"])
    strides = np.array([int(np.prod(x.type.shape[axis + 1 :])) for axis in range(rank)], np.int32)
    steps = context.add_constant(strides, f"{name}_strides")
    (steps,) = context.emit(Gather(0), steps, order, names=[f"{name}_steps"])
    element = ElementType(DType.INT32)
    places: Value | None = None
    for axis in range(rank):
        (step,) = context.emit(StridedSlice((axis,), (1,), (1,)), steps, names=[f"{name}_step{axis}"])
        numbers = np.arange(shape[axis], dtype=np.int32).reshape(-1, *(1,) * (rank - 1 - axis))
        counted = context.add_constant(numbers, f"{name}_numbers{axis}")
        (along,) = context.emit(Mul(element), counted, step, names=[f"{name}_along{axis}"])
        if places is None:
            places = along
        else:
            (places,) = context.emit(Add(element), places, along, names=[f"{name}_places{axis}"])
    assert places is not None
    (flat,) = context.emit(Reshape((x.type.size,)), x, names=[f"{name}_flat"])
    return context.emit(Gather(0), flat, places)[0]
