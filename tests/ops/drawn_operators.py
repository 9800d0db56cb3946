"""Operators on images with their operands, drawn by hypothesis: one function per operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from microfold.errors import TypeRuleError
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.hard_swish import HardSwish
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.compare import Compare
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.dropout import Dropout
from microfold.ops.elementwise.expression import Expression
from microfold.ops.elementwise.fake_quantize import FakeQuantize
from microfold.ops.elementwise.fast_math import FastSoftmax
from microfold.ops.elementwise.float_binary import FloatBinary, float_binary_operators
from microfold.ops.elementwise.lookup import Lookup
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.plain_binary import PlainBinary, plain_binary_operators
from microfold.ops.elementwise.quantized_div import QuantizedDiv
from microfold.ops.elementwise.rsqrt import Rsqrt
from microfold.ops.elementwise.select import Select
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import Unary
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.copy import Copy
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.normalize.batch_norm import BatchNorm
from microfold.ops.normalize.l2_normalization import L2Normalization
from microfold.ops.normalize.layer_norm import LayerNorm
from microfold.ops.normalize.log_softmax import LogSoftmax
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.normalize.standardize import Standardize
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.cumsum import Cumsum
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.quantized_cumsum import QuantizedCumsum
from microfold.ops.reduce.quantized_reduce_prod import QuantizedReduceProd
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin, ReduceProd
from microfold.ops.window import Padding, Pair, same_padding
from tests.draws import booleans, integers

I8, I16, I32, F32, BOOL = DType.INT8, DType.INT16, DType.INT32, DType.FLOAT32, DType.BOOL
ALL = (I8, I16, F32)
# What logistic, softmax and tanh prescribe for their results.
UNIT = {I8: Quant.per_tensor(1 / 256, -128), I16: Quant.per_tensor(1 / 32768), F32: None}
SIGNED_UNIT = UNIT | {I8: Quant.per_tensor(1 / 128)}
BIAS = {I8: I32, I16: DType.INT64, F32: F32}

Drawn = tuple[Op, list[Tensor]]


@dataclass
class Draw:
    """Numbers, types and tensors; `dtype` is the type of images.

    Floats are small integers: their sums are exact in any order.
    """

    data: st.DataObject
    dtype: DType = F32
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.number(0, 1 << 16))

    def number(self, low: int, high: int) -> int:
        return self.data.draw(integers(low, high))

    def flag(self) -> bool:
        return self.data.draw(booleans)

    def pair(self, low: int, high: int) -> Pair:
        return self.number(low, high), self.number(low, high)

    def element(self, dtype: DType | None = None) -> ElementType:
        dtype = dtype or self.dtype
        if dtype not in (I8, I16):
            return ElementType(dtype)
        scale = (0.02, 0.05, 0.11)[self.number(0, 2)] / (1 if dtype is I8 else 256)
        return ElementType(dtype, Quant.per_tensor(scale, self.number(-128, 127) if dtype is I8 else 0))

    def tensor(self, shape: tuple[int, ...], element: ElementType | None = None) -> Tensor:
        element = element or self.element()
        return Tensor(TensorType(element.dtype, shape, element.quant), self.array(shape, element.dtype))

    def array(self, shape: tuple[int, ...], dtype: DType) -> Array:
        low, high = {I8: (-128, 127), I16: (-32768, 32767), BOOL: (0, 1)}.get(dtype, (-9, 9))
        return self.rng.integers(low, high, shape, endpoint=True).astype(dtype.numpy)

    def shape(self, largest: int = 9) -> tuple[int, int, int, int]:
        return 1, self.number(1, largest), self.number(1, 5), self.number(1, 4)

    def image(self, element: ElementType | None = None) -> Tensor:
        return self.tensor(self.shape(), element)

    def padding(self, x: Tensor, extent: Pair, strides: Pair, most: Pair) -> Padding:
        """None, TensorFlow's SAME, or any of at most so many elements."""
        kind = self.number(0, 2)
        if kind == 0:
            return (0, 0), (0, 0)
        if kind == 1:
            sizes = zip(x.type.shape[1:3], extent, strides, strict=True)
            rows, columns = (same_padding(*one) for one in sizes)
            return rows, columns
        rows, columns = ((self.number(0, n), self.number(0, n)) for n in most)
        return rows, columns

    def filters(self, shape: tuple[int, ...], axis: int) -> list[Tensor]:
        """Filters and a bias."""
        channels = shape[axis]
        quant = None
        if self.dtype is not F32:
            count = channels if self.flag() else 1
            scales = tuple(float(np.float32(s)) for s in self.rng.uniform(0.002, 0.02, count))
            quant = Quant(scales, (0,) * count, axis if count > 1 else None)
        weights = self.tensor(shape, ElementType(I8 if quant else F32, quant))
        return [weights, self.tensor((channels,), ElementType(BIAS[self.dtype]))]


def _conv2d(d: Draw) -> Drawn:
    x, size, strides, dilations = d.image(), d.pair(1, 4), d.pair(1, 3), d.pair(1, 2)
    extent = (size[0] - 1) * dilations[0] + 1, (size[1] - 1) * dilations[1] + 1
    op = Conv2D(strides, dilations, d.padding(x, extent, strides, (5, 3)), d.element())
    return op, [x, *d.filters((d.number(1, 3), *size, x.type.shape[3]), 0)]


def _depthwise_conv2d(d: Draw) -> Drawn:
    x, size, strides, dilations = d.image(), d.pair(1, 4), d.pair(1, 3), d.pair(1, 2)
    extent = (size[0] - 1) * dilations[0] + 1, (size[1] - 1) * dilations[1] + 1
    op = DepthwiseConv2D(strides, dilations, d.padding(x, extent, strides, (5, 3)), d.element())
    return op, [x, *d.filters((1, *size, x.type.shape[3] * d.number(1, 2)), 3)]


def _transpose_conv2d(d: Draw) -> Drawn:
    x, size, strides = d.image(), d.pair(1, 4), d.pair(1, 3)
    op = TransposeConv2D(strides, d.pair(0, 3), d.pair(1, 12), d.element())
    return op, [x, *d.filters((d.number(1, 3), *size, x.type.shape[3]), 0)]


def _pool2d(kind: type[AveragePool2D] | type[MaxPool2D]) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        x, size, strides = d.image(), d.pair(1, 4), d.pair(1, 3)
        padding = d.padding(x, size, strides, (size[0] - 1, size[1] - 1))
        return kind(size, strides, padding), [x]

    return draw


def _unary(make: Callable[[Draw, ElementType], Op]) -> Callable[[Draw], Drawn]:
    """Of the image's own element type."""

    def draw(d: Draw) -> Drawn:
        x = d.image()
        return make(d, x.type.element), [x]

    return draw


def _broadcast(d: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to `shape`."""
    kept = tuple(n if d.flag() else 1 for n in shape)
    return kept[d.number(0, len(shape)) :]


def _binary(make: Callable[[Draw], Op], *, alike: bool = False) -> Callable[[Draw], Drawn]:
    """Of two values, one of which may be broadcast; `alike`: of one element type."""

    def draw(d: Draw) -> Drawn:
        shape = d.shape()
        first = d.element()
        second = first if alike else d.element()
        operands = [d.tensor(shape, first), d.tensor(_broadcast(d, shape), second)]
        return make(d), operands if d.flag() else operands[::-1]

    return draw


def _select(d: Draw) -> Drawn:
    shape, element = d.shape(), d.element()
    condition = d.tensor(_broadcast(d, shape), ElementType(BOOL))
    return Select(), [condition, d.tensor(shape, element), d.tensor(_broadcast(d, shape), element)]


def _float_binary(op: type[FloatBinary]) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        shape = d.shape()
        second = d.tensor(_broadcast(d, shape))
        return op(ElementType(F32)), [
            d.tensor(shape),
            Tensor(second.type, np.where(second.data, second.data, 1)),  # what it divides by, perhaps
        ]

    return draw


def _expression(d: Draw) -> Drawn:
    shape = d.shape()
    steps = (("sub", (0, 1), ()), ("clip", (3,), (-0.5, 1.0)), ("mul", (4, 0), ()), ("add", (5, 2), ()))
    return Expression(steps), [
        d.tensor(shape),
        d.tensor(_broadcast(d, shape)),
        d.tensor(_broadcast(d, shape)),
    ]


def _standardize(d: Draw) -> Drawn:
    x = d.image()
    rows = [d.tensor(x.type.shape[-1:] if d.flag() else ()) for _ in range(2)]
    return Standardize(0.001), [x, *rows]


def _plain_binary(op: type[PlainBinary]) -> Callable[[Draw], Drawn]:
    return _binary(lambda d: op(d.element()))


def _rsqrt(d: Draw) -> Drawn:
    x = d.image()
    zero = 0 if x.type.quant is None else x.type.quant.zero_point
    # Of the largest zero point, no number is above zero.
    assume(x.type.dtype.is_float or zero < x.type.dtype.range[1])
    return Rsqrt(d.element()), [Tensor(x.type, np.maximum(x.data, zero + 1).astype(x.data.dtype))]


def _lookup(d: Draw) -> Drawn:
    return Lookup(tuple(d.array((256,), I8).tolist()), d.element(I8)), [d.image(d.element(I8))]


def _concatenate(d: Draw) -> Drawn:
    shape, element, axis = d.shape(), d.element(), d.number(2, 3)
    shapes = [(*shape[:axis], d.number(1, 3), *shape[axis + 1 :]) for _ in range(d.number(1, 3))]
    return Concatenate(axis), [d.tensor(s, element) for s in shapes]


def _pad(d: Draw) -> Drawn:
    return Pad(((0, 0), *(d.pair(0, 3) for _ in range(3))), float(d.number(-9, 9))), [d.image()]


def _resize(d: Draw) -> Drawn:
    x, align, half = d.image(), d.flag(), d.flag()
    factor = d.number(1, 3)
    height = x.type.shape[1] * factor if d.flag() else d.number(1, 12)
    return ResizeNearestNeighbor((height, d.number(1, 8)), align, half and not align), [x]


def _strided_slice(d: Draw) -> Drawn:
    x = d.image()
    begin, size, strides = [0], [1], [1]
    for extent in x.type.shape[1:]:
        step = d.number(1, 3)
        count = d.number(1, (extent - 1) // step + 1)
        first = d.number(0, extent - 1 - (count - 1) * step)
        backwards = d.flag()
        begin.append(first + (count - 1) * step if backwards else first)
        size.append(count)
        strides.append(-step if backwards else step)
    return StridedSlice(tuple(begin), tuple(size), tuple(strides)), [x]


def _broadcast_to(d: Draw) -> Drawn:
    shape = d.shape()
    return BroadcastTo(shape), [d.tensor(_broadcast(d, shape))]


def _transpose(d: Draw) -> Drawn:
    return Transpose((0, 1, 3, 2) if d.flag() else (0, 1, 2, 3)), [d.image()]


def _gather(d: Draw) -> Drawn:
    x, axis = d.image(), d.number(2, 3)
    indices = d.rng.integers(0, x.type.shape[axis], d.number(1, 4)).astype(np.int32)
    return Gather(axis), [x, Tensor(TensorType(I32, indices.shape), indices)]


def _batch_norm(d: Draw) -> Drawn:
    x, axis = d.image(), (0, 2, 3)[d.number(0, 2)]
    channels = (x.type.shape[axis],)
    variance = Tensor(TensorType(F32, channels), d.rng.integers(1, 9, channels).astype(np.float32))
    return BatchNorm(axis, 0.001), [x, *(d.tensor(channels) for _ in range(3)), variance]


def _layer_norm(d: Draw) -> Drawn:
    x, axis = d.image(), d.number(2, 3)
    return LayerNorm(axis, 0.001), [x, *(d.tensor(x.type.shape[axis:]) for _ in range(2))]


def _axes(d: Draw) -> tuple[int, ...]:
    return tuple(axis for axis in (0, 2, 3) if d.flag())


Case = tuple[tuple[DType, ...], Callable[[Draw], Drawn]]
INT = (I8, I16)

# The element types of images, and what draws the operator.
OPERATORS: Mapping[str, Case] = {
    "abs": (ALL, _unary(lambda d, _: Abs(d.element()))),
    "add": (ALL, _binary(lambda d: Add(d.element()))),
    "average_pool2d": (ALL, _pool2d(AveragePool2D)),
    "batch_norm": ((F32,), _batch_norm),
    "broadcast_to": (ALL, _broadcast_to),
    "cast": ((I8, I32, F32), _unary(lambda d, _: Cast((F32, I8, BOOL)[d.number(0, 2)]))),
    "clip": (ALL, _unary(lambda *_: Clip(-1.0, 2.0))),
    "compare": (ALL, _binary(lambda _: Compare("less"))),
    "concatenate": (ALL, _concatenate),
    "conv2d": (ALL, _conv2d),
    "copy": (ALL, _unary(lambda *_: Copy())),
    "cumsum": ((F32, I32), _unary(lambda d, _: Cumsum((0, 2, 3)[d.number(0, 2)], d.flag(), d.flag()))),
    "depthwise_conv2d": (ALL, _depthwise_conv2d),
    "dequantize": (INT, _unary(lambda *_: Dequantize())),
    "dropout": ((F32,), _unary(lambda *_: Dropout(0.5))),
    "expression": ((F32,), _expression),
    "fake_quantize": ((F32,), _unary(lambda *_: FakeQuantize(-1.0, 2.0, 8, False))),
    "fast_softmax": ((F32,), _unary(lambda *_: FastSoftmax(1.0, ElementType(F32)))),
    "gather": (ALL, _gather),
    "hard_swish": ((I8, F32), _unary(lambda d, _: HardSwish(d.element()))),
    "l2_normalization": (
        (I8, F32),
        _unary(lambda _, e: L2Normalization(ElementType(e.dtype, SIGNED_UNIT[e.dtype]))),
    ),
    "layer_norm": ((F32,), _layer_norm),
    "leaky_relu": (ALL, _unary(lambda d, _: LeakyRelu(0.25, d.element()))),
    "log_softmax": (
        (I8, F32),
        _unary(
            lambda _, e: LogSoftmax(
                ElementType(e.dtype, Quant.per_tensor(1 / 16, 127) if e.dtype is I8 else None)
            )
        ),
    ),
    "logistic": (ALL, _unary(lambda _, e: Logistic(ElementType(e.dtype, UNIT[e.dtype])))),
    "lookup": ((I8,), _lookup),
    "max_pool2d": (ALL, _pool2d(MaxPool2D)),
    "maximum": (ALL, _binary(lambda _: Maximum(), alike=True)),
    "mean": (ALL, _unary(lambda d, _: Mean(_axes(d), True, d.element()))),
    "minimum": (ALL, _binary(lambda _: Minimum(), alike=True)),
    "mul": (ALL, _binary(lambda d: Mul(d.element()))),
    "pad": (ALL, _pad),
    "prelu": (ALL, _binary(lambda d: Prelu(d.element()))),
    "quantized_div": ((I8, I16), _binary(lambda d: QuantizedDiv(d.element()))),
    "quantize": ((F32,), _unary(lambda d, _: Quantize(d.element(I8)))),
    "quantized_cumsum": (
        (I8,),
        _unary(
            lambda d, _: QuantizedCumsum(
                (0, 2, 3)[d.number(0, 2)], d.flag(), d.flag(), ElementType(I8, Quant.per_tensor(0.4, 3))
            )
        ),
    ),
    "reduce_max": (ALL, _unary(lambda d, _: ReduceMax(_axes(d), True))),
    "reduce_min": (ALL, _unary(lambda d, _: ReduceMin(_axes(d), True))),
    "reduce_prod": ((F32, I32), _unary(lambda d, _: ReduceProd(_axes(d), True))),
    "quantized_reduce_prod": (
        INT,
        _unary(lambda d, e: QuantizedReduceProd(_axes(d), True, d.element(e.dtype))),
    ),
    "relu": (INT, _unary(lambda d, _: Relu(0.0, 6.0, d.element()))),
    "requantize": (INT, _unary(lambda d, _: Requantize(d.element()))),
    "resize_nearest_neighbor": (ALL, _resize),
    "rsqrt": (ALL, _rsqrt),
    "select": (ALL, _select),
    "softmax": (ALL, _unary(lambda _, e: Softmax(1.0, ElementType(e.dtype, UNIT[e.dtype])))),
    "squared_difference": (ALL, _binary(lambda d: SquaredDifference(d.element()))),
    "standardize": ((F32,), _standardize),
    "strided_slice": (ALL, _strided_slice),
    "sub": (ALL, _binary(lambda d: Sub(d.element()))),
    "sum": (ALL, _unary(lambda d, _: Sum(_axes(d), True, d.element()))),
    "tanh": (ALL, _unary(lambda _, e: Tanh(ElementType(e.dtype, SIGNED_UNIT[e.dtype])))),
    "transpose": (ALL, _transpose),
    "transpose_conv2d": (ALL, _transpose_conv2d),
    "unary": (ALL, _unary(lambda d, _: Unary("exp", d.element()))),
    **{op.name: ((F32,), _float_binary(op)) for op in float_binary_operators()},
    **{op.name: (op.dtypes, _plain_binary(op)) for op in plain_binary_operators()},
}


def draw_operator(name: str, data: st.DataObject) -> Drawn:
    """An operator of that name and operands, which its type rule may yet refuse."""
    dtypes, draw = OPERATORS[name]
    return draw(Draw(data, data.draw(st.sampled_from(dtypes))))


def draw_part(name: str, data: st.DataObject, axis: int) -> tuple[Op, list[Tensor], Tensor, tuple[int, int]]:
    """An operator, its operands, its result, and a part of that along an axis: a first and an end.

    Operands that the operator refuses are drawn again.
    """
    op, operands = draw_operator(name, data)
    try:
        (whole,) = op.evaluate(operands)
    except TypeRuleError:
        assume(False)
        raise
    start = data.draw(st.integers(0, whole.type.shape[axis] - 1))
    return op, operands, whole, (start, data.draw(st.integers(start + 1, whole.type.shape[axis])))
