"""Shared import functions of bidirectional layers, whose second cell runs on the reversed sequence."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext
from microfold.ir.node import Value
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.strided_slice import StridedSlice


def reversed_in_time(context: OperatorContext, x: Value, time_major: bool) -> Value:
    """Return a sequence in reversed order."""
    axis = 0 if time_major else 1
    begin = tuple(n - 1 if i == axis else 0 for i, n in enumerate(x.type.shape))
    strides = tuple(-1 if i == axis else 1 for i in range(x.type.rank))
    names = [f"{x.name}_reversed"]
    return context.emit(StridedSlice(begin, x.type.shape, strides), x, names=names)[0]


def finish_directions(
    context: OperatorContext, forward: Value, backward: Value, time_major: bool, merged: bool
) -> None:
    """Finish with the results of both directions, concatenated if they are merged."""
    turned = reversed_in_time(context, backward, time_major)
    if merged:
        context.finish(*context.emit(Concatenate(2), forward, turned))
    else:
        context.finish(forward, turned)
