"""Random quantised networks with dead, constant and unread channels."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph, State
from microfold.ir.node import EpilogueStep, Node, Value, make_node
from microfold.ir.op import Op, Pattern
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.transpose import Transpose
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean
from tests.draws import booleans, integers, pick

SCALES = (0.02, 0.1, 1.5)
ZERO_POINTS = (-128, -128, -7, 0, 127)
INT32 = 1 << 31
MAX_SIZE = 600
INF = float("inf")

# Those that find or make dead channels are drawn more often.
OPERATORS = (
    *("conv2d", "conv2d", "conv2d", "conv2d", "depthwise", "depthwise", "depthwise", "fully_connected"),
    *("clip", "clip", "add", "add", "concatenate", "pool", "pad", "reshape", "mean", "mul", "sub", "unary"),
    *("maximum", "requantize", "resize", "transpose", "transpose_conv2d", "softmax"),
)


class _Builder:
    def __init__(self, draw: st.DrawFn):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
        self.dtype = pick(draw, (DType.INT8, DType.INT8, DType.INT8, DType.INT16))
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.pool: list[Value] = []

    def number(self, low: int, high: int) -> int:
        return self.draw(integers(low, high))

    def flag(self) -> bool:
        return self.draw(booleans)

    def element(self) -> ElementType:
        zero_point = pick(self.draw, ZERO_POINTS) if self.dtype is DType.INT8 else 0
        return ElementType(self.dtype, Quant.per_tensor(pick(self.draw, SCALES), zero_point))

    def pick(self, rank: int | None = None) -> Value:
        """Late values are likelier: networks are deep rather than wide."""
        fitting = [v for v in self.pool if rank is None or v.type.rank == rank]
        recent = fitting[-3:] if self.flag() else fitting
        return pick(self.draw, recent or self.pool)

    def constant(self, array: Array, type: TensorType) -> Value:
        value = Value(f"c{len(self.constants)}", type)
        self.constants[value] = array.astype(type.dtype.numpy)
        return value

    def weights(self, shape: tuple[int, ...], outputs: int, inputs: int | None) -> Value:
        """Small weights; whole channels of either kind may be zero."""
        array = self.rng.integers(-9, 10, shape)
        for axis in (outputs, inputs):
            if axis is not None:
                zero = self.rng.random(shape[axis]) < 0.2
                array = np.where(zero.reshape([-1 if i == axis else 1 for i in range(len(shape))]), 0, array)
        if self.number(0, 3) == 0:  # only a centre: borders make no difference
            array[:, 1:] = 0
        channels = shape[outputs]
        if self.flag():
            scales = tuple(float(np.float32(0.01 * (i + 1))) for i in range(channels))
            quant = Quant(scales, (0,) * channels, outputs)
        else:
            quant = Quant.per_tensor(0.03)
        return self.constant(array, TensorType(DType.INT8, shape, quant))

    def bias(self, channels: int) -> Value | None:
        """Some biases decide alone what comes out."""
        if self.number(0, 4) == 0:
            return None
        wide = self.dtype is DType.INT16 and self.flag()
        values = self.rng.integers(-3000, 3000, channels)
        extreme = self.rng.choice([-(1 << 30), -(10**6), 10**6, 1 << 30, INT32 - 1, -INT32], channels)
        share = pick(self.draw, (0.0, 0.4, 1.0))
        array = np.where(self.rng.random(channels) < share, extreme, values)
        return self.constant(array, TensorType(DType.INT64 if wide else DType.INT32, (channels,)))

    def emit(self, op: Op, *inputs: Value | None) -> None:
        """Append the node, if its type rule admits it and it is not too large."""
        steps: tuple[EpilogueStep, ...] = ()
        fusable = op.pattern in (Pattern.OUT_ELEMENTWISE_FUSABLE, Pattern.BROADCAST)
        if fusable and self.flag() and self.flag():
            steps = (EpilogueStep(Clip(0.0, INF)),)
        try:
            node = make_node(op, inputs, [f"v{len(self.nodes)}"], steps)
        except TypeRuleError:
            return
        if 0 < node.output.type.size <= MAX_SIZE:
            self.nodes.append(node)
            self.pool.append(node.output)

    def step(self) -> None:
        getattr(self, f"_{pick(self.draw, OPERATORS)}")()

    def _window(self) -> tuple[tuple[int, int], tuple[int, int], tuple[tuple[int, int], tuple[int, int]]]:
        size = (self.number(1, 3), self.number(1, 3))
        padding = ((self.number(0, 1), self.number(0, 1)), (self.number(0, 1), self.number(0, 1)))
        return size, (self.number(1, 2), self.number(1, 2)), padding if self.flag() else ((0, 0), (0, 0))

    def _conv2d(self) -> None:
        x, (size, strides, padding) = self.pick(4), self._window()
        if x.type.rank != 4:
            return
        size, padding = (size, padding) if self.flag() else ((1, 1), ((0, 0), (0, 0)))
        channels = x.type.shape[3]
        divisors = [d for d in range(1, channels + 1) if channels % d == 0]
        depth = pick(self.draw, divisors + [channels] * 4)
        filters = channels // depth * self.number(1, 5)
        weights = self.weights((filters, *size, depth), 0, 3)
        op = Conv2D(strides, (self.number(1, 2), self.number(1, 2)), padding, self.element())
        self.emit(op, x, weights, self.bias(filters))

    def _depthwise(self) -> None:
        x, (size, strides, padding) = self.pick(4), self._window()
        if x.type.rank != 4:
            return
        channels = x.type.shape[3] * pick(self.draw, (1, 1, 2))
        weights = self.weights((1, *size, channels), 3, None)
        self.emit(DepthwiseConv2D(strides, (1, 1), padding, self.element()), x, weights, self.bias(channels))

    def _transpose_conv2d(self) -> None:
        x = self.pick(4)
        if x.type.rank != 4:
            return
        filters = self.number(1, 4)
        weights = self.weights((filters, 2, 2, x.type.shape[3]), 0, 3)
        op = TransposeConv2D((2, 2), (0, 0), (self.number(2, 4), self.number(2, 4)), self.element())
        self.emit(op, x, weights, self.bias(filters))

    def _fully_connected(self) -> None:
        x = self.pick()
        if x.type.rank != 2:
            self.emit(Reshape((1, x.type.size)), x)
            x = self.pool[-1]
        if x.type.rank == 2:
            units = self.number(1, 5)
            weights = self.weights((units, x.type.shape[1]), 0, 1)
            self.emit(FullyConnected(self.element()), x, weights, self.bias(units))

    def _clip(self) -> None:
        bounds = pick(self.draw, ((0.0, INF), (0.0, 6.0), (-1.0, 1.0), (3.0, 3.0)))
        self.emit(Clip(*bounds), self.pick())

    def _binary(self, op: Op) -> None:
        x = self.pick()
        like = [v for v in self.pool if v.type.shape == x.type.shape]
        kind = self.number(0, 4)
        if kind == 0:
            shape = pick(self.draw, (x.type.shape, x.type.shape[-1:], (1,)))
            array = self.rng.integers(-100, 100, shape)
            other = self.constant(array, TensorType(self.dtype, shape, self.element().quant))
        else:
            other = pick(self.draw, like if kind < 4 else self.pool)
        self.emit(op, *((x, other) if self.flag() else (other, x)))

    def _add(self) -> None:
        self._binary(Add(self.element()))

    def _sub(self) -> None:
        self._binary(Sub(self.element()))

    def _mul(self) -> None:
        self._binary(Mul(self.element()))

    def _maximum(self) -> None:
        self._binary(Maximum())

    def _concatenate(self) -> None:
        x = self.pick()
        same = [v for v in self.pool if v.type.element == x.type.element and v.type.rank == x.type.rank]
        others = [pick(self.draw, same) for _ in range(self.number(1, 2))]
        self.emit(Concatenate(self.number(0, max(x.type.rank - 1, 0))), x, *others)

    def _pool(self) -> None:
        size, strides, padding = self._window()
        self.emit((AveragePool2D if self.flag() else MaxPool2D)(size, strides, padding), self.pick(4))

    def _pad(self) -> None:
        x = self.pick()
        pairs = [(self.number(0, 1), self.number(0, 1)) for _ in x.type.shape]
        if pairs and self.number(0, 3):
            pairs[-1] = (0, 0)
        self.emit(Pad(tuple(pairs), float(pick(self.draw, (-128, -7, 0)))), x)

    def _reshape(self) -> None:
        x = self.pick()
        last = x.type.shape[-1] if x.type.shape else 1
        half = (-1, last // 2) if last % 2 == 0 and last > 1 else (-1, last)
        shape = pick(self.draw, ((1, x.type.size), (1, 1, -1, last), half, (x.type.size,)))
        known = abs(int(np.prod(shape)))
        self.emit(Reshape(tuple(x.type.size // known if n == -1 else n for n in shape)), x)

    def _mean(self) -> None:
        x = self.pick(4)
        axes = pick(self.draw, ((1, 2), (1,), (1, 2, 3)))
        self.emit(Mean(axes, self.flag(), self.element()), x)

    def _unary(self) -> None:
        kinds = (LeakyRelu(-0.3, self.element()), Relu(0.0, 6.0, self.element()))
        limit = Quant.per_tensor(1 / 128) if self.dtype is DType.INT8 else Quant.per_tensor(1 / 32768)
        self.emit(pick(self.draw, (*kinds, Tanh(ElementType(self.dtype, limit)))), self.pick())

    def _requantize(self) -> None:
        self.emit(Requantize(self.element()), self.pick())

    def _resize(self) -> None:
        self.emit(ResizeNearestNeighbor((self.number(1, 4), self.number(1, 4)), False, False), self.pick(4))

    def _transpose(self) -> None:
        x = self.pick()
        self.emit(Transpose(tuple(self.draw(st.permutations(range(x.type.rank))))), x)

    def _softmax(self) -> None:
        low = Quant.per_tensor(1 / 256, -128) if self.dtype is DType.INT8 else Quant.per_tensor(1 / 32768)
        self.emit(Softmax(1.0, ElementType(self.dtype, low)), self.pick())

    def graph(self) -> Graph:
        shape = (1, self.number(1, 5), self.number(1, 5), self.number(1, 4))
        inputs = [Value("x", TensorType(self.dtype, shape, self.element().quant))]
        has_state = self.number(0, 4) == 0
        kept = [Value("s", TensorType(self.dtype, shape, self.element().quant))] if has_state else []
        self.pool += [*inputs, *kept]
        for _ in range(self.number(1, 14)):
            self.step()
        alike = {s: [v for v in self.pool if v.type == s.type] for s in kept}
        following = [pick(self.draw, alike[s]) for s in kept]
        zeros = [np.zeros(s.type.shape, s.type.dtype.numpy) for s in kept]
        state = tuple(map(State, kept, zeros, following))
        outputs = [self.pool[-1], *self.draw(st.lists(st.sampled_from(self.pool), max_size=1))]
        graph = Graph("network", tuple(inputs), tuple(outputs), tuple(self.nodes), self.constants, state)
        return graph.with_nodes(graph.nodes)


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """Well-formed int8 or int16 networks of at most a dozen layers."""
    return _Builder(draw).graph()
