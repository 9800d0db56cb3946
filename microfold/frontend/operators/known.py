"""Importers of operators whose results are known at compile time: RANK, RANGE, WHERE …

The results depend on shapes or constants. For computed inputs, the shape of the result would depend on their
values, so the operators are rejected.
"""

from __future__ import annotations

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.ir.limits import MAX_ELEMENTS
from microfold.ir.node import Value
from microfold.ir.types import Array, DType
from microfold.ops.elementwise.compare import Compare
from microfold.ops.elementwise.select import Select
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.pad import Pad


def _finish_constant(context: OperatorContext, *arrays: Array) -> None:
    if any(array.size == 0 for array in arrays):
        raise Unsupported("its result has no elements")
    context.finish(*(context.add_constant(a, context.name(i)) for i, a in enumerate(arrays)))


@imports("RANK")
def rank(context: OperatorContext) -> None:
    _finish_constant(context, np.array(context.input(0).type.rank, np.int32))


@imports("ZEROS_LIKE")
def zeros_like(context: OperatorContext) -> None:
    """Return stored zeros, regardless of the zero point."""
    x, out = context.input(0), context.element()
    if x.type.dtype is not out.dtype:
        raise Unsupported(f"its result must be {x.type.dtype.value} like its input; it is {out.dtype.value}")
    zero = context.add_constant(np.zeros((), out.dtype.numpy), f"{context.name()}_zero", out)
    context.finish(*context.emit(BroadcastTo(x.type.shape), zero))


@imports("RANGE")
def range_(context: OperatorContext) -> None:
    """Add the step to the previous number, in the type of the numbers."""
    limits: list[Array] = []
    for index, what in enumerate(("start", "limit", "delta")):
        array = context.constant(index, what)
        if array.size != 1 or array.dtype.name not in ("int32", "int64", "float32"):
            raise Unsupported(
                f"its {what} must be one int32, int64 or float32; it is {array.dtype}{list(array.shape)}"
            )
        limits.append(array.reshape(()))
    start, limit, delta = limits
    if not start.dtype == limit.dtype == delta.dtype:
        raise Unsupported(
            f"start, limit and delta must have one type; they are {start.dtype}, {limit.dtype}, {delta.dtype}"
        )
    count = _range_length(start, limit, delta)
    if count > MAX_ELEMENTS:
        raise Unsupported(f"a tensor has at most {MAX_ELEMENTS} elements; its result has {count}")
    context.scope.allowance.check(count * start.itemsize)
    steps = np.full(count, delta)
    steps[0] = start
    _finish_constant(context, np.cumsum(steps, dtype=start.dtype))


def _range_length(start: Array, limit: Array, delta: Array) -> int:
    """Return the number of elements of a range, computed as in LiteRT.

    For floats, span and quotient are float32. For integers, the count is exact, and the span must fit the
    type.

    Raises:
        Unsupported: delta does not lead from start to limit, or the arithmetic of the references overflows.
    """
    rule = f"delta must lead from start to limit; they are {delta}, {start} and {limit}"
    if start.dtype.kind == "f":
        with np.errstate(all="ignore"):
            span = np.subtract(limit, start)
            count = np.ceil(np.divide(span, delta))
        if not (np.isfinite(count) and count > 0):
            raise Unsupported(rule)
        return int(count)
    span, step = int(limit) - int(start), int(delta)
    if span * step <= 0:
        raise Unsupported(rule)
    if abs(span) + abs(step) - 1 > np.iinfo(start.dtype).max:
        raise Unsupported(f"limit - start + delta must fit {start.dtype}; they are {limit}, {start}, {delta}")
    return (abs(span) + abs(step) - 1) // abs(step)


@imports("WHERE")
def where(context: OperatorContext) -> None:
    """Return the indices of all non-zero elements [n, rank]."""
    condition = context.constant(0, "condition")
    if condition.ndim == 0:
        raise Unsupported("its condition must have an axis; it is a scalar")
    _finish_constant(context, np.argwhere(condition).astype(np.int64))


@imports("UNIQUE")
def unique(context: OperatorContext) -> None:
    """Return the distinct elements by first occurrence, and the index into them for each element."""
    context.required_options("UniqueOptions")
    x, array = context.input(0), context.constant(0, "input")
    context.require_same_quantization(x)
    if array.ndim != 1 or not array.size:
        raise Unsupported(f"its input must have one axis, and elements; it is {x.type}")
    if len(context.raw.outputs) != 2 or context.element(1).dtype not in (DType.INT32, DType.INT64):
        raise Unsupported("it must have 2 outputs, the second one int32 or int64")
    _, first, inverse = np.unique(array, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places = np.argsort(order)[inverse]
    values = context.add_constant(array[np.sort(first)], context.name(0), x.type.element)
    indices = context.add_constant(places.astype(context.element(1).dtype.numpy), context.name(1))
    context.finish(values, indices)


@imports("BROADCAST_ARGS")
def broadcast_args(context: OperatorContext) -> None:
    """Return the shape to which two shapes broadcast: along each axis, the extent that is not 1.

    For computed shapes, the generated code does not check whether they broadcast. The references stop the run
    with an error if they do not.
    """
    first, second = context.input(0), context.input(1)
    for shape in (first, second):
        if shape.type.rank != 1 or shape.type.dtype not in (DType.INT32, DType.INT64):
            raise Unsupported(f"shapes must be lists of int32 or int64; one is {shape.type}")
    known = [context.known(index) for index in range(2)]
    if known[0] is not None and known[1] is not None:
        pairs = zip(reversed(known[0].tolist()), reversed(known[1].tolist()), strict=False)
        if any(a != b and 1 not in (a, b) for a, b in pairs):
            raise Unsupported(f"the shapes {known[0].tolist()} and {known[1].tolist()} do not broadcast")
    length = max(first.type.size, second.type.size)
    first, second = (_with_ones(context, shape, length) for shape in (first, second))
    one = context.add_constant(np.ones((), first.type.dtype.numpy), f"{context.name()}_one")
    (is_one,) = context.emit(Compare("equal"), first, one, names=[f"{context.name()}_is_one"])
    context.finish(*context.emit(Select(), is_one, second, first))


def _with_ones(context: OperatorContext, shape: Value, length: int) -> Value:
    before = length - shape.type.size
    if before == 0:
        return shape
    return context.emit(Pad(((before, 0),), 1.0), shape, names=[f"{context.name()}_{shape.name}"])[0]
