"""Importers of reductions over axes: MEAN, SUM, REDUCE_MAX, TOPK_V2 …"""

from __future__ import annotations

from itertools import combinations

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.operators.movement.shapes import one
from microfold.ir.node import Value
from microfold.ir.types import DType
from microfold.ops.elementwise.unary_rule import QUANTIZED
from microfold.ops.reduce.arg_max import ArgMax, ArgMin
from microfold.ops.reduce.cumsum import Cumsum
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.quantized_cumsum import QuantizedCumsum
from microfold.ops.reduce.quantized_reduce_prod import QuantizedReduceProd
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin, ReduceProd
from microfold.ops.reduce.top_k import TopK


def _reduction(context: OperatorContext) -> tuple[Value, tuple[int, ...], bool]:
    x, keep_dims = context.input(0), bool(context.required_options("ReducerOptions").KeepDims())
    if context.known(1) is None:
        return x, _axes_by_shape(context, x, keep_dims), keep_dims
    axes = sorted({context.axis(axis, x.type.rank) for axis in context.integers(1, "axes")})
    return x, tuple(axes), keep_dims


def _axes_by_shape(context: OperatorContext, x: Value, keep_dims: bool) -> tuple[int, ...]:
    """Derive axes that the model computes from the shape of the result in the file.

    Raises:
        Unsupported: the shape does not determine the axes. Axes of extent 1 are ignored, because reducing
            along them has no effect.
    """
    shape, extents = context.static_shape("axes", len(context.declared_shape())), x.type.shape
    found: list[tuple[int, ...]] = []
    for count in range(x.type.rank + 1):
        for axes in combinations(range(x.type.rank), count):
            kept = (
                1 if axis in axes else n for axis, n in enumerate(extents) if keep_dims or axis not in axes
            )
            if tuple(kept) == shape:
                found.append(axes)
    if len({tuple(axis for axis in axes if extents[axis] > 1) for axes in found}) != 1:
        raise Unsupported(
            f"its axes are computed by the model, so the shape of its result must determine them; "
            f"{list(shape)} can result from {found} of {x.type}",
            "export the model with constant axes",
        )
    return found[0]


@imports("MEAN")
def mean(context: OperatorContext) -> None:
    x, axes, keep_dims = _reduction(context)
    context.finish(*context.emit(Mean(axes, keep_dims, context.element()), x))


@imports("SUM")
def sum_(context: OperatorContext) -> None:
    """Compute sums; for bool, whether any element is true, as in LiteRT."""
    x, axes, keep_dims = _reduction(context)
    if x.type.dtype is DType.BOOL:
        context.finish(*context.emit(ReduceMax(axes, keep_dims), x))
        return
    context.finish(*context.emit(Sum(axes, keep_dims, context.element()), x))


@imports("REDUCE_MAX")
def reduce_max(context: OperatorContext) -> None:
    x, axes, keep_dims = _reduction(context)
    context.require_same_quantization(x)
    context.finish(*context.emit(ReduceMax(axes, keep_dims), x))


@imports("REDUCE_MIN")
def reduce_min(context: OperatorContext) -> None:
    x, axes, keep_dims = _reduction(context)
    context.require_same_quantization(x)
    context.finish(*context.emit(ReduceMin(axes, keep_dims), x))


@imports("REDUCE_PROD")
def reduce_prod(context: OperatorContext) -> None:
    """Compute products; for bool, whether all elements are true, as in LiteRT."""
    x, axes, keep_dims = _reduction(context)
    if x.type.dtype in QUANTIZED:
        context.finish(*context.emit(QuantizedReduceProd(axes, keep_dims, context.element()), x))
        return
    op = ReduceMin if x.type.dtype is DType.BOOL else ReduceProd
    context.finish(*context.emit(op(axes, keep_dims), x))


@imports("REDUCE_ALL")
def reduce_all(context: OperatorContext) -> None:
    """Compute the minimum of bool elements."""
    x, axes, keep_dims = _of_truth_values(context)
    context.finish(*context.emit(ReduceMin(axes, keep_dims), x))


@imports("REDUCE_ANY")
def reduce_any(context: OperatorContext) -> None:
    """Compute the maximum of bool elements."""
    x, axes, keep_dims = _of_truth_values(context)
    context.finish(*context.emit(ReduceMax(axes, keep_dims), x))


def _of_truth_values(context: OperatorContext) -> tuple[Value, tuple[int, ...], bool]:
    x, axes, keep_dims = _reduction(context)
    if not x.type.dtype is context.element().dtype is DType.BOOL:
        raise Unsupported(
            f"input and result must be bool; they are {x.type} and {context.element().dtype.value}"
        )
    return x, axes, keep_dims


@imports("TOPK_V2")
def top_k(context: OperatorContext) -> None:
    x = context.input(0)
    if context.known(1) is None:
        *_, count = context.static_shape("k", max(x.type.rank, 1))
    else:
        (count,) = one(context.integers(1, "k"), "k")
    x = context.with_declared_scale(x)
    if len(context.raw.outputs) != 2:
        raise Unsupported(f"it must have 2 outputs; it has {len(context.raw.outputs)}")
    op = TopK(count, context.element(1).dtype)
    context.finish(*context.emit(op, x, names=[context.name(0), context.name(1)]))


@imports("CUMSUM")
def cumsum(context: OperatorContext) -> None:
    options = context.required_options("CumsumOptions")
    x = context.input(0)
    (axis,) = one(context.integers(1, "axis"), "axis")
    attributes = (context.axis(axis, x.type.rank), bool(options.Exclusive()), bool(options.Reverse()))
    quantized = x.type.dtype is DType.INT8
    op = QuantizedCumsum(*attributes, context.element()) if quantized else Cumsum(*attributes)
    context.finish(*context.emit(op, x))


@imports("ARG_MAX")
def arg_max(context: OperatorContext) -> None:
    _arg_extremum(context, ArgMax)


@imports("ARG_MIN")
def arg_min(context: OperatorContext) -> None:
    _arg_extremum(context, ArgMin)


def _arg_extremum(context: OperatorContext, op: type[ArgMax] | type[ArgMin]) -> None:
    options = context.required_options(f"{op.__name__}Options")
    context.require_type("output_type", int(options.OutputType()))
    x = context.input(0)
    if context.known(1) is None:
        axes = _axes_by_shape(context, x, keep_dims=False)
        if len(axes) != 1:
            raise Unsupported(
                f"it must have one axis; from the shape of its result, they are {list(axes)} of {x.type}"
            )
        (axis,) = axes
    else:
        (axis,) = one(context.integers(1, "axis"), "axis")
    context.finish(*context.emit(op(context.axis(axis, x.type.rank), context.element().dtype), x))
