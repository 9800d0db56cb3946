"""Random small graphs for property tests: branches, shared readers, constants, states, odd outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph, State
from microfold.ir.node import Node, Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean
from tests.draws import booleans, integers, pick
from tests.random_operators import STEPS, UNIT

SCALES = (0.05, 0.1, 0.37)
ZERO_POINTS = (-128, -5, 0, 3)
BOUNDS = (-math.inf, -1.0, 0.0, 1.0, 6.0, 40.0, math.inf)
MAX_SIZE = 400


class Builder:
    """Draws one graph; `pool` are the values that later nodes may read."""

    def __init__(self, draw: st.DrawFn):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
        self.dtype = draw(
            st.sampled_from((DType.FLOAT32, DType.FLOAT32, DType.INT8, DType.INT8, DType.INT16))
        )
        self.floating = self.dtype is DType.FLOAT32
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.pool: list[Value] = []

    def pick(self, options: Sequence[object]) -> object:
        return pick(self.draw, options)

    def number(self, low: int, high: int) -> int:
        return self.draw(integers(low, high))

    def name(self) -> str:
        return str(self.pick(("a", "b", "model/conv;bias:0", "with space", 'quote"#1', "é%")))

    def element(self) -> ElementType:
        if self.floating:
            return ElementType(DType.FLOAT32)
        scale, zero_point = float(str(self.pick(SCALES))), int(str(self.pick(ZERO_POINTS)))
        if self.dtype is DType.INT16:
            scale, zero_point = scale / 256, 0
        return ElementType(self.dtype, Quant.per_tensor(scale, zero_point))

    def image(self) -> TensorType:
        element = self.element()
        shape = (1, self.number(1, 5), self.number(1, 5), self.number(1, 3))
        return TensorType(element.dtype, shape, element.quant)

    def data(self, type: TensorType) -> Array:
        if type.dtype.is_float:
            return np.round(self.rng.standard_normal(type.shape), 2).astype(np.float32)
        span = 40 if type.dtype is DType.INT8 else 300
        return self.rng.integers(-span, span, type.shape).astype(type.dtype.numpy)

    def constant(self, type: TensorType) -> Value:
        value = Value(self.name(), type)
        self.constants[value] = self.data(type)
        return value

    def weights(self, shape: tuple[int, ...], axis: int, channels: int) -> tuple[Value, Value | None]:
        """A filter and, perhaps, a bias."""
        if self.floating:
            quant, bias = None, TensorType(DType.FLOAT32, (channels,))
        else:
            per_channel = self.draw(booleans)
            scales = tuple(float(np.float32(0.01 * (i + 1))) for i in range(channels if per_channel else 1))
            quant = Quant(scales, (0,) * len(scales), axis if per_channel else None)
            wide = self.dtype is DType.INT16 and self.draw(booleans)
            bias = TensorType(DType.INT64 if wide else DType.INT32, (channels,))
        dtype = DType.FLOAT32 if self.floating else DType.INT8
        filters = self.constant(TensorType(dtype, shape, quant))
        return filters, self.constant(bias) if self.draw(booleans) else None

    def emit(self, op: Op, *inputs: Value | None) -> None:
        """Append the node if its type rule admits it and it is not too large."""
        try:
            node = make_node(op, inputs, [self.name()])
        except TypeRuleError:
            return
        if node.output.type.size <= MAX_SIZE:
            self.nodes.append(node)
            self.pool.append(node.output)

    def step(self) -> None:
        x = self.pick(self.pool)
        assert isinstance(x, Value)
        kinds = ["clip", "clip", "add", "reshape", "pad", "transpose", "softmax", "again"]
        kinds += ["concatenate", "slice", "mean", "turned", "affine", "affine", *STEPS]
        if x.type.rank == 4:
            kinds += [
                "conv2d",
                "conv2d",
                "depthwise",
                "pool",
                "pool",
                "pad_image",
                "pad_image",
                "padded_pool",
            ]
        if x.type.rank == 2:
            kinds += ["fully_connected"] * 3
        kind = str(self.pick(kinds))
        if kind in STEPS:
            STEPS[kind](self, x)
        else:
            getattr(self, f"_{kind}")(x)

    def _clip(self, x: Value) -> None:
        low, high = sorted((float(str(self.pick(BOUNDS))), float(str(self.pick(BOUNDS)))))
        if (low, high) not in ((math.inf, math.inf), (-math.inf, -math.inf)):
            self.emit(Clip(low, high), x)

    def _add(self, x: Value) -> None:
        like = [v for v in self.pool if v.type.shape == x.type.shape]
        other = self.constant(x.type) if self.draw(booleans) else self.pick(like)
        assert isinstance(other, Value)
        self.emit(Add(self.element()), x, other)

    def _reshape(self, x: Value) -> None:
        shapes = ((x.type.size,), (1, x.type.size), x.type.shape, (*x.type.shape[:1], -1), (1, 1, -1, 1))
        shape = tuple(int(str(n)) for n in self.pick(shapes))  # type: ignore[attr-defined]
        known = math.prod(n for n in shape if n != -1)
        self.emit(Reshape(tuple(x.type.size // known if n == -1 else n for n in shape)), x)

    def _transpose(self, x: Value) -> None:
        self.emit(Transpose(tuple(self.draw(st.permutations(range(x.type.rank))))), x)

    def _turned(self, x: Value) -> None:
        """A step on a transposed value, and what turns its result back, if its shape is still such."""
        if x.type.rank < 2:
            return
        order = tuple(self.draw(st.permutations(range(x.type.rank))))
        count = len(self.nodes)
        self.emit(Transpose(order), x)
        if len(self.nodes) > count:
            step = self.pick(("_clip", "_add", "_pad", "_concatenate", "_slice", "_mean"))
            getattr(self, str(step))(self.pool[-1])
            back = tuple(int(axis) for axis in np.argsort(order))
            if self.pool[-1].type.rank == x.type.rank:
                self.emit(Transpose(back), self.pool[-1])

    def _concatenate(self, x: Value) -> None:
        axis = self.number(0, max(x.type.rank - 1, 0))
        shape = x.type.shape
        others = [
            v
            for v in self.pool
            if v.type.element == x.type.element
            and v.type.rank == x.type.rank
            and v.type.shape[:axis] + v.type.shape[axis + 1 :] == shape[:axis] + shape[axis + 1 :]
        ]
        parts = [self.pick(others) for _ in range(self.number(1, 2))]
        assert all(isinstance(part, Value) for part in parts)
        last = [self.constant(x.type)] if self.number(0, 3) == 0 else []
        self.emit(Concatenate(axis), x, *parts, *last)  # type: ignore[arg-type]

    def _slice(self, x: Value) -> None:
        if not x.type.size:
            return
        begin = tuple(self.number(0, extent - 1) for extent in x.type.shape)
        size = tuple(self.number(1, n - first) for n, first in zip(x.type.shape, begin, strict=True))
        self.emit(StridedSlice(begin, size, (1,) * len(size)), x)

    def _mean(self, x: Value) -> None:
        axes = tuple(axis for axis in range(x.type.rank) if self.draw(booleans))
        all_of_them = len(axes) == x.type.rank
        self.emit(Mean(axes, all_of_them or self.draw(booleans), self.element()), x)

    def _softmax(self, x: Value) -> None:
        self.emit(Softmax(1.0, UNIT[self.dtype]), x)

    def _pad(self, x: Value) -> None:
        pairs = tuple((self.number(0, 1), self.number(0, 1)) for _ in x.type.shape)
        self.emit(Pad(pairs, self._fill(x)), x)

    def _pad_image(self, x: Value) -> None:
        rows, columns = ((self.number(0, 2), self.number(0, 2)) for _ in range(2))
        self.emit(Pad(((0, 0), rows, columns, (0, 0)), self._fill(x)), x)

    def _fill(self, x: Value) -> float:
        zero = 0 if x.type.quant is None else x.type.quant.zero_point
        return float(str(self.pick((float(zero), float(zero), 7.0 if self.floating else -128.0))))

    def _window(self) -> tuple[tuple[int, int], tuple[int, int], tuple[tuple[int, int], tuple[int, int]]]:
        size, strides = ((self.number(1, 3), self.number(1, 3)), (self.number(1, 2), self.number(1, 2)))
        padding = ((self.number(0, 1), self.number(0, 1)), (self.number(0, 1), self.number(0, 1)))
        return size, strides, padding

    def _layout(self) -> str:
        return str(self.pick(("NHWC", "NHWC", "NHWC", "NCHW")))

    def _conv2d(self, x: Value) -> None:
        size, strides, padding = self._window()
        layout = self._layout()
        channels = x.type.shape[layout.index("C")]
        depth = int(str(self.pick([d for d in range(1, channels + 1) if channels % d == 0])))
        filters = (channels // depth) * self.number(1, 2)
        weights, bias = self.weights((filters, *size, depth), 0, filters)
        dilations = (self.number(1, 2), self.number(1, 2))
        self.emit(Conv2D(strides, dilations, padding, self.element(), layout), x, weights, bias)

    def _depthwise(self, x: Value) -> None:
        size, strides, padding = self._window()
        layout = self._layout()
        channels = x.type.shape[layout.index("C")] * self.number(1, 2)
        weights, bias = self.weights((1, *size, channels), 3, channels)
        self.emit(DepthwiseConv2D(strides, (1, 1), padding, self.element(), layout), x, weights, bias)

    def _pool(self, x: Value) -> None:
        size, strides, padding = self._window()
        op = AveragePool2D if self.draw(booleans) else MaxPool2D
        self.emit(op(size, strides, padding, self._layout()), x)

    def _padded_pool(self, x: Value) -> None:
        """A maximum pool of an image padded with the lowest value, which no window sees alone.

        Infinite values are kept from other readers: where a pass adds products by zero, they would make NaN.
        """
        size, strides, _ = self._window()
        rows, columns = ((self.number(0, n - 1), self.number(0, n - 1)) for n in size)
        fill = -math.inf if self.floating else float(self.dtype.range[0])
        count = len(self.nodes)
        self.emit(Pad(((0, 0), rows, columns, (0, 0)), fill), x)
        if len(self.nodes) > count:
            self.emit(MaxPool2D(size, strides, ((0, 0), (0, 0))), self.pool.pop())

    def _fully_connected(self, x: Value) -> None:
        units = self.number(1, 3)
        weights, bias = self.weights((units, x.type.shape[1]), 0, units)
        self.emit(FullyConnected(self.element()), x, weights, bias)

    def _again(self, x: Value) -> None:
        """A node that is there already, on its operands or on another value."""
        if self.nodes:
            node = self.pick(self.nodes)
            assert isinstance(node, Node)
            infinite = isinstance(node.op, Pad) and math.isinf(node.op.fill)
            if not infinite:
                self.emit(node.op, *(node.inputs if self.draw(booleans) else (x, *node.inputs[1:])))

    def graph(self) -> Graph:
        inputs = tuple(Value(self.name(), self.image()) for _ in range(self.number(1, 2)))
        kept = tuple(Value("state", self.image()) for _ in range(self.number(0, 2)))
        initial = [self.data(value.type) for value in kept]
        self.pool += [*inputs, *kept]
        if self.draw(booleans):
            self.pool.append(self.constant(self.image()))
        for _ in range(self.number(1, 12)):
            self.step()
        state = tuple(
            State(value, array, self._like(value)) for value, array in zip(kept, initial, strict=True)
        )
        outputs = [self.pool[-1], *self.draw(st.lists(st.sampled_from(self.pool), max_size=3))]
        graph = Graph("random graph", inputs, tuple(outputs), tuple(self.nodes), self.constants, state)
        return graph.with_nodes(graph.nodes)

    def _like(self, value: Value) -> Value:
        same = [v for v in self.pool if v.type == value.type]
        chosen = self.pick(same)
        assert isinstance(chosen, Value)
        return chosen


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Well-formed graphs of int8, int16 or float32 values with at most about a dozen nodes."""
    return Builder(draw).graph()
