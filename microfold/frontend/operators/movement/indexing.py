"""Importers of operators that read or write elements at indices: GATHER, GATHER_ND, SCATTER_ND …"""

from __future__ import annotations

import math

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.operators.movement.shapes import one
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType
from microfold.ops.elementwise.compare import Compare
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.select import Select
from microfold.ops.elementwise.sub import Sub
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.dynamic_update_slice import DynamicUpdateSlice
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.gather_nd import GatherNd
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.scatter_nd import ScatterNd
from microfold.ops.movement.transpose import Transpose


def _require_positions(context: OperatorContext, index: int, shape: tuple[int, ...]) -> None:
    """Reject constant indices out of range. Input `index` has positions in a value of this shape."""
    positions = context.known(index)
    depth = positions.shape[-1] if positions is not None and positions.ndim else 0
    if positions is None or not positions.size or not 1 <= depth <= len(shape):
        return  # computed, or rejected later by the type rule
    for axis, extent in enumerate(shape[:depth]):
        low, high = int(positions[..., axis].min()), int(positions[..., axis].max())
        if not 0 <= low <= high < extent:
            raise Unsupported(
                f"indices along axis {axis} must be in [0, {extent}); they are in [{low}, {high}]"
            )


def _require_in_range(context: OperatorContext, index: int, extent: int) -> None:
    numbers = context.known(index)
    if numbers is not None and numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < extent:
        raise Unsupported(
            f"indices must be in [0, {extent}); they are in [{int(numbers.min())}, {int(numbers.max())}]"
        )


@imports("GATHER")
def gather(context: OperatorContext) -> None:
    options = context.required_options("GatherOptions")
    x, indices = context.input(0), context.input(1)
    if indices.type.dtype is DType.INT16:
        (indices,) = context.emit(Cast(DType.INT32), indices, names=[f"{context.name()}_indices"])
    x = context.with_declared_scale(x)
    axis = context.axis(int(options.Axis()), x.type.rank)
    batched = int(options.BatchDims())
    batched += indices.type.rank if batched < 0 else 0
    shape = x.type.shape
    if not 0 <= batched <= min(axis, indices.type.rank) or indices.type.shape[:batched] != shape[:batched]:
        raise Unsupported(
            f"batch dimensions must be the first axes of {x.type} and of the indices, and not after axis "
            f"{axis}; they are {int(options.BatchDims())}, and the indices are {indices.type}"
        )
    _require_in_range(context, 1, shape[axis])
    if batched == 0:
        context.finish(*context.emit(Gather(axis), x, indices))
    else:
        context.finish(_gathered_by_batch(context, x, axis, batched))


def _gathered_by_batch(context: OperatorContext, x: Value, axis: int, batched: int) -> Value:
    """Gather with separate indices for each batch element, by pairs of batch number and index."""
    indices, name = context.input(1), context.name()
    batch, outer, inner = x.type.shape[:batched], x.type.shape[batched:axis], x.type.shape[axis + 1 :]
    counted = indices.type.shape[batched:]
    number, count = math.prod(batch), math.prod(counted)
    split = (number, math.prod(outer), x.type.shape[axis], math.prod(inner))
    (x,) = context.emit(Reshape(split), x, names=[f"{name}_split"])
    (x,) = context.emit(Transpose((0, 2, 1, 3)), x, names=[f"{name}_slices"])
    if indices.type.dtype is not DType.INT32:
        (indices,) = context.emit(Cast(DType.INT32), indices, names=[f"{name}_indices"])
    (x,) = context.emit(GatherNd(), x, _numbered(context, indices, number, count), names=[f"{name}_taken"])
    (x,) = context.emit(Transpose((0, 2, 1, 3)), x, names=[f"{name}_moved"])
    return context.emit(Reshape((*batch, *outer, *counted, *inner)), x)[0]


def _numbered(context: OperatorContext, places: Value, number: int, count: int) -> Value:
    """Prepend the row number to each index of the rows; returns int32 [number, count, 2]."""
    name = context.name()
    (places,) = context.emit(Reshape((number, count, 1)), places, names=[f"{name}_column"])
    rows = np.broadcast_to(np.arange(number, dtype=np.int32)[:, None, None], (number, count, 1)).copy()
    numbers = context.add_constant(rows, f"{name}_numbers")
    return context.emit(Concatenate(2), numbers, places, names=[f"{name}_positions"])[0]


@imports("GATHER_ND")
def gather_nd(context: OperatorContext) -> None:
    x, indices = context.input(0), context.input(1)
    x = context.with_declared_scale(x)
    _require_positions(context, 1, x.type.shape)
    context.finish(*context.emit(GatherNd(), x, indices))


@imports("SCATTER_ND")
def scatter_nd(context: OperatorContext) -> None:
    indices, updates = context.input(0), context.input(1)
    updates = context.with_declared_scale(updates)
    shape = context.result_shape(2, "shape")
    _require_positions(context, 0, shape)
    context.finish(*context.emit(ScatterNd(shape), indices, updates))


@imports("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(context: OperatorContext) -> None:
    x, update, start = (context.input(i) for i in range(3))
    x, update = (context.with_declared_scale(value) for value in (x, update))
    context.finish(*context.emit(DynamicUpdateSlice(), x, update, start))


@imports("EMBEDDING_LOOKUP")
def embedding_lookup(context: OperatorContext) -> None:
    """Gather rows of a table. For an integer table with a float32 result, multiply them by their scale."""
    indices, table = context.input(0), context.input(1)
    if indices.type.rank != 1 or table.type.rank < 2:
        raise Unsupported(
            f"it must have a list of indices and a table of at least two axes; they are {indices.type} and "
            f"{table.type}"
        )
    _require_in_range(context, 0, table.type.shape[0])
    if context.element().dtype is table.type.dtype:
        table = context.with_declared_scale(table)
        context.finish(*context.emit(Gather(0), table, indices))
        return
    context.finish(_scaled_rows(context, indices, table))


def _scaled_rows(context: OperatorContext, indices: Value, table: Value) -> Value:
    """Return ``row * scale`` for a constant int8 or int4 table with one scale, or one per row."""
    quant, array, name = table.type.quant, context.constant(1, "table"), context.name()
    if context.element().dtype is not DType.FLOAT32 or table.type.dtype not in (DType.INT8, DType.INT4):
        raise Unsupported(
            "the result must have the type of the table, or be float32 for a table of int8 or int4; it is "
            f"{context.element().dtype.value}, and the table {table.type.dtype.value}"
        )
    if quant is None or quant.axis not in (None, 0) or any(quant.zero_points):
        raise Unsupported(
            "an integer table must be quantised with one scale, or one per row, and zero points of 0; "
            f"its quantisation is {quant}",
            "quantise the table symmetrically",
        )
    plain = context.add_constant(array, f"{table.name}_integers", ElementType(DType.INT8))
    (taken,) = context.emit(Gather(0), plain, indices, names=[f"{name}_integers"])
    (taken,) = context.emit(Cast(DType.FLOAT32), taken, names=[f"{name}_unscaled"])
    scales = context.add_constant(
        np.array(quant.scales, np.float32).reshape(-1, *(1,) * (table.type.rank - 1)), f"{table.name}_scales"
    )
    if quant.axis is not None:
        (scales,) = context.emit(Gather(0), scales, indices, names=[f"{name}_scales"])
    return context.emit(Mul(ElementType(DType.FLOAT32)), taken, scales)[0]


@imports("ONE_HOT")
def one_hot(context: OperatorContext) -> None:
    """Return ``on`` if the index equals the position along the new axis, else ``off``.

    The references copy the bytes of both, regardless of their scales.
    """
    axis = int(context.required_options("OneHotOptions").Axis())
    indices, on, off = context.input(0), context.input(2), context.input(3)
    if on.type.size != 1 or off.type.size != 1:
        raise Unsupported(f"its two values must be one element each; they are {on.type} and {off.type}")
    name, rank = context.name(), indices.type.rank
    on, off = (context.with_declared_scale(value) for value in (on, off))
    axis = rank if axis == -1 else context.axis(axis, rank + 1)
    if context.known(1) is None:
        depth = context.static_shape("depth", rank + 1)[axis]
    else:
        (depth,) = one(context.shape(1, "depth"), "depth")
    shape = (*indices.type.shape[:axis], 1, *indices.type.shape[axis:])
    places = np.arange(depth).astype(indices.type.dtype.numpy)
    counted = context.add_constant(places.reshape(-1, *(1,) * (rank - axis)), f"{name}_places")
    (spread,) = context.emit(Reshape(shape), indices, names=[f"{name}_indices"])
    (hot,) = context.emit(Compare("equal"), spread, counted, names=[f"{name}_hot"])
    scalars = [context.emit(Reshape(()), v, names=[f"{name}_{k}"])[0] for k, v in (("on", on), ("off", off))]
    context.finish(*context.emit(Select(), hot, *scalars))


@imports("SPARSE_TO_DENSE")
def sparse_to_dense(context: OperatorContext) -> None:
    """Fill a tensor with a default, and write values to distinct constant positions."""
    values, default, name = context.input(2), context.input(3), context.name()
    values, default = (context.with_declared_scale(value) for value in (values, default))
    positions, shape = context.constant(0, "positions"), context.result_shape(1, "shape")
    positions = positions.reshape(-1, 1) if positions.ndim < 2 else positions
    count = len(positions)
    if positions.dtype.kind != "i" or not positions.size or not math.prod(shape):
        raise Unsupported(
            f"it must have positions in a tensor; they are {context.input(0).type}, in {list(shape)}"
        )
    if positions.shape[1] != len(shape) or values.type.shape not in ((), (count,)) or default.type.size != 1:
        raise Unsupported(
            f"it must have an index on each axis of {list(shape)} per value, and one default; they are "
            f"{context.input(0).type}, {values.type} and {default.type}"
        )
    low, high = positions.min(axis=0), positions.max(axis=0)
    flat = np.ravel_multi_index(tuple(np.clip(positions.T, 0, np.array(shape)[:, None] - 1)), shape)
    if (low < 0).any() or (high >= shape).any() or np.unique(flat).size < count:
        raise Unsupported(
            f"positions must be distinct, and inside of {list(shape)}; they are {positions.tolist()[:8]}"
        )
    # Index of the value for each element. The default follows the values.
    places = np.full(math.prod(shape), count if values.type.rank else 1, np.int32)
    places[flat] = np.arange(count) if values.type.rank else 0
    (row,) = context.emit(Reshape((values.type.size,)), values, names=[f"{name}_values"])
    (last,) = context.emit(Reshape((1,)), default, names=[f"{name}_default"])
    (numbers,) = context.emit(Concatenate(0), row, last, names=[f"{name}_numbers"])
    indices = context.add_constant(places.reshape(shape), f"{name}_places")
    context.finish(*context.emit(Gather(0), numbers, indices))


@imports("REVERSE_SEQUENCE")
def reverse_sequence(context: OperatorContext) -> None:
    """Reverse the first elements of each sequence, gathered by pairs of batch number and position."""
    options = context.required_options("ReverseSequenceOptions")
    x, lengths, name = context.input(0), context.input(1), context.name()
    x = context.with_declared_scale(x)
    along, batch = (context.axis(int(axis), x.type.rank) for axis in (options.SeqDim(), options.BatchDim()))
    if along == batch:
        raise Unsupported(f"sequences and batch must be different axes; both are {along}")
    count, extent = x.type.shape[batch], x.type.shape[along]
    if lengths.type.shape != (count,):
        raise Unsupported(f"each of {count} sequences must have a length; the lengths are {lengths.type}")
    numbers = context.known(1)
    if numbers is not None and not 0 <= int(numbers.min()) <= int(numbers.max()) <= extent:
        raise Unsupported(
            f"lengths must be in [0, {extent}]; they are in [{int(numbers.min())}, {int(numbers.max())}]"
        )
    order = (batch, along, *(axis for axis in range(x.type.rank) if axis not in (batch, along)))
    inverse = tuple(order.index(axis) for axis in range(x.type.rank))
    if order != inverse or order != tuple(range(x.type.rank)):
        (x,) = context.emit(Transpose(order), x, names=[f"{name}_sequences"])
    positions = _reversed_positions(context, lengths, count, extent)
    moved = order != tuple(range(x.type.rank))
    (x,) = context.emit(GatherNd(), x, positions, names=[f"{name}_reversed" if moved else name])
    if moved:
        (x,) = context.emit(Transpose(inverse), x)
    context.finish(x)


def _reversed_positions(context: OperatorContext, lengths: Value, count: int, extent: int) -> Value:
    """Return the sequence and the source position of each result element, int32 [count, extent, 2]."""
    name, int32 = context.name(), ElementType(DType.INT32)
    if lengths.type.dtype is not DType.INT32:
        (lengths,) = context.emit(Cast(DType.INT32), lengths, names=[f"{name}_lengths"])
    (column,) = context.emit(Reshape((count, 1)), lengths, names=[f"{name}_ends"])
    places = context.add_constant(np.arange(extent, dtype=np.int32)[None], f"{name}_places")
    behind = context.add_constant(np.arange(1, extent + 1, dtype=np.int32)[None], f"{name}_behind")
    (mirrored,) = context.emit(Sub(int32), column, behind, names=[f"{name}_mirrored"])
    (inside,) = context.emit(Compare("less"), places, column, names=[f"{name}_inside"])
    (chosen,) = context.emit(Select(), inside, mirrored, places, names=[f"{name}_sources"])
    return _numbered(context, chosen, count, extent)
