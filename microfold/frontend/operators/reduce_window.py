"""Importer of STABLEHLO_REDUCE_WINDOW: windows over any axes, reduced by a function in a subgraph."""

from __future__ import annotations

import math
from collections.abc import Sequence

from microfold.frontend.context import MAX_LIST, OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.operators.movement.rearrangement import spread
from microfold.frontend.operators.movement.shapes import exact_fill
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.types import DType, TensorType
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.pool2d import MaxPool2D


@imports("STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM")
def function(context: OperatorContext) -> None:
    """Import a function of plain numbers. LiteRT does not define it for quantised values."""
    first, second, out = context.input(0), context.input(1), context.element()
    if any(quant is not None for quant in (first.type.quant, second.type.quant, out.quant)):
        raise Unsupported(f"quantised values are not supported; they are {first.type} and {second.type}")
    named: dict[str, Op] = {"ADD": Add(out), "MULTIPLY": Mul(out), "MAXIMUM": Maximum(), "MINIMUM": Minimum()}
    context.finish(*context.emit(named[context.raw.name.removeprefix("STABLEHLO_")], first, second))


@imports("STABLEHLO_REDUCE_WINDOW")
def reduce_window(context: OperatorContext) -> None:
    """Reduce along one axis after the other, with one slice for each element of the window.

    The functions are associative and commutative, except for rounding of floats. The initial value is applied
    once, and is also the value of padding and of elements inserted by dilation.
    """
    options = context.raw.newer_options("StablehloReduceWindowOptions")
    if options is None or len(context.raw.inputs) != 2:
        raise Unsupported("it must have options, an operand and an initial value", "export the model again")
    x, start = context.input(0), context.constant(1, "initial value")
    context.require_same_quantization(x)
    if x.type.quant is not None or start.size != 1 or start.dtype != x.type.dtype.numpy:
        raise Unsupported(
            f"it must have plain numbers and an initial value of the same type; they are {x.type} and "
            f"{context.input(1).type}"
        )
    window, strides, base, dilations = (
        _numbers(options, field, x.type.rank)
        for field in ("WindowDimensions", "WindowStrides", "BaseDilations", "WindowDilations")
    )
    ends = _numbers(options, "Padding", 2 * x.type.rank, 0)
    padding = tuple(zip(ends[::2], ends[1::2], strict=True))
    scalars = [Value(f"{context.name()}_{side}", TensorType(x.type.dtype, ())) for side in ("left", "right")]
    op = _body(context, int(options.BodySubgraphIndex()), scalars)
    fill = exact_fill(start)
    pooled = _max_pool(op, x, fill, window, strides, padding)
    if pooled is not None and base == dilations == (1,) * x.type.rank:
        context.finish(*context.emit(pooled, x))
        return
    x = spread(context, x, base, fill)
    name = context.name()
    if any(map(any, padding)):
        (x,) = context.emit(Pad(padding, fill), x, names=[f"{name}_padded"])
    for axis in range(x.type.rank):
        x = _along(context, op, x, axis, (window[axis], strides[axis], dilations[axis]))
    if start.reshape(()) != _neutral(op, x.type.dtype):
        initial = context.add_constant(start.reshape(()), f"{name}_initial")
        (x,) = context.emit(op, x, initial)
    context.finish(x)


def _neutral(op: Op, dtype: DType) -> float:
    low, high = (-math.inf, math.inf) if dtype.is_float else dtype.range
    return (
        0 if isinstance(op, Add) else 1 if isinstance(op, Mul) else low if isinstance(op, Maximum) else high
    )


def _numbers(options: object, field: str, count: int, default: int = 1) -> tuple[int, ...]:
    """Return a list in the options, or the default values if it is missing."""
    length = int(getattr(options, f"{field}Length")())
    if length not in (0, count):
        raise Unsupported(f"{field} must have {count} numbers; it has {length}")
    numbers = tuple(int(getattr(options, field)(i)) for i in range(length)) or (default,) * count
    if min(numbers, default=0) < default or max(numbers, default=0) > MAX_LIST:
        raise Unsupported(f"{field} must be in [{default}, {MAX_LIST}]; it is {list(numbers)}")
    return numbers


def _body(context: OperatorContext, index: int, scalars: Sequence[Value]) -> Op:
    graph = context.scope.enter(index, scalars).graph
    node = graph.nodes[0] if len(graph.nodes) == 1 else None
    if (
        node is None
        or not isinstance(node.op, Add | Mul | Maximum | Minimum)
        or set(node.operands) != set(graph.inputs)
        or graph.outputs != node.outputs
    ):
        raise Unsupported("the function of its windows must be one sum, product, maximum or minimum")
    return node.op


def _max_pool(
    op: Op,
    x: Value,
    start: float,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
) -> MaxPool2D | None:
    if not isinstance(op, Maximum) or x.type.dtype is not DType.FLOAT32 or start != -math.inf:
        return None
    outer = x.type.rank == 4 and all((window[k], strides[k], *padding[k]) == (1, 1, 0, 0) for k in (0, 3))
    if not outer or any(max(padding[k]) >= window[k] for k in (1, 2)):
        return None
    return MaxPool2D((window[1], window[2]), (strides[1], strides[2]), (padding[1], padding[2]))


def _along(context: OperatorContext, op: Op, x: Value, axis: int, window: tuple[int, int, int]) -> Value:
    """Reduce windows along one axis. `window` is the size, the stride and the dilation."""
    count, stride, dilation = window
    reach = (count - 1) * dilation + 1
    shape, name = x.type.shape, f"{context.name()}_axis{axis}"
    if shape[axis] < reach:
        raise Unsupported(
            f"windows must fit the input; along axis {axis} they span {reach} of {shape[axis]} elements"
        )
    if (count, stride) == (1, 1):
        return x
    size = (*shape[:axis], (shape[axis] - reach) // stride + 1, *shape[axis + 1 :])
    steps = tuple(stride if k == axis else 1 for k in range(len(shape)))
    result: Value | None = None
    for position in range(count):
        begin = tuple(int(position * dilation) if k == axis else 0 for k in range(len(shape)))
        (part,) = context.emit(StridedSlice(begin, size, steps), x, names=[f"{name}_part{position}"])
        if result is None:
            result = part
        else:
            (result,) = context.emit(op, result, part, names=[f"{name}_{position}"])
    assert result is not None
    return result
