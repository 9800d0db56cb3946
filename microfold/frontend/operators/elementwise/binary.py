"""Importers of elementwise operators on two values: ADD, MUL …"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from microfold.frontend.context import MAX_LIST, OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.operators.signal.fourier import finish_product
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.compare import Compare
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.div import Div
from microfold.ops.elementwise.float_binary import FloatBinary, float_binary_operators
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.plain_binary import PlainBinary, plain_binary_operators
from microfold.ops.elementwise.quantized_div import QuantizedDiv
from microfold.ops.elementwise.select import Select
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.trunc_div import TruncDiv
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.reduce.mean import Sum
from microfold.ops.reduce.quantized_cumsum import QuantizedCumsum


def _arithmetic(context: OperatorContext, op: Op, options_kind: str) -> None:
    options = context.options(options_kind)
    (result,) = context.emit(op, context.input(0), context.input(1))
    context.finish_activated(result, int(options.FusedActivationFunction()) if options is not None else 0)


@imports("ADD")
def add(context: OperatorContext) -> None:
    _arithmetic(context, Add(context.element()), "AddOptions")


@imports("SUB")
def sub(context: OperatorContext) -> None:
    _arithmetic(context, Sub(context.element()), "SubOptions")


@imports("MUL")
def mul(context: OperatorContext) -> None:
    """Import a product. In the reference, products of complex numbers have no fused activation."""
    if any(context.parts(index) is not None for index in range(2)):
        options = context.options("MulOptions")
        if options is not None and options.FusedActivationFunction():
            raise Unsupported("a product of complex numbers must not have a fused activation")
        finish_product(context)
        return
    _arithmetic(context, Mul(context.element()), "MulOptions")


@imports("DIV")
def div(context: OperatorContext) -> None:
    out = context.element()
    quantized = dict.fromkeys((DType.INT8, DType.UINT8, DType.INT16), QuantizedDiv)
    kinds = {**quantized, DType.INT32: TruncDiv}
    _arithmetic(context, kinds.get(out.dtype, Div)(out), "DivOptions")


# Other functions of two floats or plain numbers, which have no options.
_FUNCTIONS: dict[str, type[FloatBinary | PlainBinary]] = {
    op.name.upper(): op
    for op in (*float_binary_operators(), *plain_binary_operators())
    if op not in (Div, TruncDiv)
}


@imports(*_FUNCTIONS)
def function(context: OperatorContext) -> None:
    op = _FUNCTIONS[context.raw.name](context.element())
    context.finish(*context.emit(op, context.input(0), context.input(1)))


@imports("SQUARED_DIFFERENCE")
def squared_difference(context: OperatorContext) -> None:
    op = SquaredDifference(context.element())
    context.finish(*context.emit(op, context.input(0), context.input(1)))


@imports("ADD_N")
def add_n(context: OperatorContext) -> None:
    """Import as a chain of additions; for int8 as the last cumulative sum along a new axis, as in TFLM."""
    first, *others = context.inputs()
    if any(value.type != first.type for value in others):
        types = ", ".join(str(value.type) for value in (first, *others))
        raise Unsupported(f"its inputs must have one type; they are {types}")
    if first.type.quant is not None:
        context.finish(_last_sum(context, [first, *others]))
        return
    for value in others:
        (first,) = context.emit(Add(context.element()), first, value)
    context.finish(first)


def _last_sum(context: OperatorContext, values: Sequence[Value]) -> Value:
    name, shape = context.name(), values[0].type.shape
    rows = [
        context.emit(Reshape((1, *shape)), value, names=[f"{name}_row{index}"])[0]
        for index, value in enumerate(values)
    ]
    (column,) = context.emit(Concatenate(0), *rows, names=[f"{name}_column"])
    sums = QuantizedCumsum(0, exclusive=False, reverse=False, out=context.element())
    (summed,) = context.emit(sums, column, names=[f"{name}_sums"])
    last = StridedSlice((len(values) - 1, *(0,) * len(shape)), (1, *shape), (1,) * (len(shape) + 1))
    (row,) = context.emit(last, summed, names=[f"{name}_last"])
    return context.emit(Reshape(shape), row)[0]


@imports("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
def compare(context: OperatorContext) -> None:
    op = Compare(context.raw.name.lower())
    context.finish(*context.emit(op, context.input(0), context.input(1)))


@imports("BUCKETIZE")
def bucketize(context: OperatorContext) -> None:
    """Count the boundaries that are less than or equal to each number."""
    options, x, name = context.required_options("BucketizeOptions"), context.input(0), context.name()
    count = int(options.BoundariesLength())
    if x.type.dtype not in (DType.FLOAT32, DType.INT32, DType.INT64) or not 1 <= count <= MAX_LIST:
        raise Unsupported(
            f"needs float32, int32 or int64, and 1 to {MAX_LIST} boundaries; they are {x.type} and {count}"
        )
    numbers = np.array([options.Boundaries(i) for i in range(count)], np.float32)
    is_float = x.type.dtype is DType.FLOAT32
    # LiteRT compares integers in float32, which cannot represent all larger ones.
    if not (np.diff(numbers) >= 0).all() or not (is_float or np.abs(numbers).max() <= 1 << 24):
        raise Unsupported(
            "its boundaries must ascend, and for integers must not exceed 2^24; they "
            f"are {numbers.tolist()[:8]}"
        )
    if not is_float:
        numbers = np.ceil(numbers)  # the smallest integer that is not less
    boundaries = context.add_constant(numbers.astype(x.type.dtype.numpy), f"{name}_boundaries")
    (column,) = context.emit(Reshape((*x.type.shape, 1)), x, names=[f"{name}_column"])
    (above,) = context.emit(Compare("greater_equal"), column, boundaries, names=[f"{name}_above"])
    (ones,) = context.emit(Cast(DType.INT32), above, names=[f"{name}_ones"])
    context.finish(*context.emit(Sum((x.type.rank,), False, ElementType(DType.INT32)), ones))


@imports("SELECT", "SELECT_V2")
def select(context: OperatorContext) -> None:
    condition, first, second = (context.input(i) for i in range(3))
    first, second = (context.with_declared_scale(value) for value in (first, second))
    context.finish(*context.emit(Select(), condition, first, second))


@imports("MAXIMUM")
def maximum(context: OperatorContext) -> None:
    first, second = context.input(0), context.input(1)
    first, second = (context.with_declared_scale(value) for value in (first, second))
    context.finish(*context.emit(Maximum(), first, second))


@imports("MINIMUM")
def minimum(context: OperatorContext) -> None:
    first, second = context.input(0), context.input(1)
    first, second = (context.with_declared_scale(value) for value in (first, second))
    context.finish(*context.emit(Minimum(), first, second))


@imports("LOGICAL_AND")
def logical_and(context: OperatorContext) -> None:
    """Compute the minimum of two bool values."""
    context.finish(*context.emit(Minimum(), *_truth_values(context, 2)))


@imports("LOGICAL_OR")
def logical_or(context: OperatorContext) -> None:
    """Compute the maximum of two bool values."""
    context.finish(*context.emit(Maximum(), *_truth_values(context, 2)))


@imports("LOGICAL_NOT")
def logical_not(context: OperatorContext) -> None:
    """Compare with false."""
    false = context.add_constant(np.array(False), f"{context.name()}_false")
    context.finish(*context.emit(Compare("equal"), *_truth_values(context, 1), false))


def _truth_values(context: OperatorContext, count: int) -> list[Value]:
    values = [context.input(i) for i in range(count)]
    if any(value.type.dtype is not DType.BOOL for value in values):
        raise Unsupported(f"its inputs must be bool; they are {', '.join(str(v.type) for v in values)}")
    return values
