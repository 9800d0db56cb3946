"""Random small networks for differential tests of kernels and the arena: shapes, scales and weights that no
trained model has, in chains and branches, so that results lie over dying operands."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.logistic import Logistic
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
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean
from microfold.ops.window import Padding, Pair

MAX_ELEMENTS = 9000
MAX_MACS = 200_000
KERNELS = ((1, 1), (1, 1), (3, 3), (3, 3), (5, 5), (2, 2), (7, 1), (1, 7), (10, 4), (1, 3), (4, 1))
CLIPS = ((0.0, 6.0), (0.0, math.inf), (-1.0, 1.0), (-math.inf, 0.0), (1.0, 1.0))
# Scale and zero point that the operators prescribe for their results.
UNIT = {
    DType.FLOAT32: ElementType(DType.FLOAT32),
    DType.INT8: ElementType(DType.INT8, Quant.per_tensor(1 / 256, -128)),
    DType.INT16: ElementType(DType.INT16, Quant.per_tensor(1 / 32768, 0)),
}
SIGNED_UNIT = UNIT | {DType.INT8: ElementType(DType.INT8, Quant.per_tensor(1 / 128, 0))}


class _Builder:
    """Draws one network; `pool` are the values that later nodes may read."""

    def __init__(self, seed: int, dtype: DType):
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.pool: list[Value] = []
        self.steps: list[Callable[[Value], None]] = [
            *[self.conv2d] * 5,
            *[self.depthwise] * 4,
            *[self.residual] * 3,
            *[self.binary] * 3,
            *[self.pool2d] * 2,
            *[self.fully_connected] * 2,
            *[self.concatenate] * 2,
            self.pad,
            self.reshape,
            self.clip,
            self.unary,
            self.mean,
            self.slice,
            self.transpose,
        ]

    # Draws

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def small(self, high: int) -> int:
        """In [1, high], mostly small."""
        return 1 + int((high - 1) * self.rng.random() ** 2 + 0.5)

    def zero_point(self) -> int:
        if self.dtype is not DType.INT8:
            return 0
        return (-128, 127, 0, self.number(-128, 127), self.number(-128, 127))[self.number(0, 4)]

    def element(self, scale: float | None = None) -> ElementType:
        if self.dtype is DType.FLOAT32:
            return ElementType(self.dtype)
        if scale is None:
            scale = 10 ** self.rng.uniform(-2.5, 0) / (1 if self.dtype is DType.INT8 else 256)
        return ElementType(self.dtype, Quant.per_tensor(min(max(scale, 1e-20), 1e20), self.zero_point()))

    def image(self) -> tuple[int, int, int, int]:
        batch = (1, 1, 1, 2, 3)[self.number(0, 4)]
        return batch, self.small(20), self.small(20), self.small(40)

    def window(self, largest: Pair | None = None) -> tuple[Pair, Pair, Pair, Padding]:
        """Size, strides, dilations and padding."""
        size = KERNELS[self.number(0, len(KERNELS) - 1)]
        if self.chance(0.25):
            size = self.number(1, 5), self.number(1, 5)
        if largest is not None and self.chance(0.3):
            size = largest
        same = ((1, 1), (1, 1), (2, 2), (self.number(1, 3), self.number(1, 3)))
        strides = same[self.number(0, 3)]
        dilations = (self.number(1, 2), self.number(1, 2)) if self.chance(0.2) else (1, 1)
        if self.chance(0.6):
            spans = [(n - 1) * d for n, d in zip(size, dilations, strict=True)]
            padding = tuple((span // 2, span - span // 2) for span in spans)
        else:
            padding = tuple((self.number(0, n - 1), self.number(0, n - 1)) for n in size)
        return size, strides, dilations, padding  # type: ignore[return-value]

    def weights(self, shape: tuple[int, ...], axis: int) -> Array:
        if self.dtype is DType.FLOAT32:
            depth = math.prod(shape) / shape[axis]
            return (self.rng.normal(size=shape) / math.sqrt(depth)).astype(np.float32)
        kind = self.number(0, 14)
        if kind <= 1:
            array = self.rng.choice([-128, -127, 127], shape)
        elif kind == 2:
            array = np.full(shape, self.rng.choice([-128, 127, 1, 1, 0]))
        elif kind <= 4:
            array = self.rng.integers(-127, 128, shape) * (self.rng.random(shape) < 0.15)
        else:
            array = self.rng.integers(-127, 128, shape)
        if self.chance(0.1):  # some channels are constant
            array = array * np.expand_dims(
                self.rng.random(shape[axis]) < 0.6, tuple(i for i in range(len(shape)) if i != axis)
            )
        return array.astype(np.int8)

    # Nodes

    def constant(self, type: TensorType, array: Array) -> Value:
        value = Value("constant", type)
        self.constants[value] = array.astype(type.dtype.numpy)
        return value

    def emit(self, op: Op, *inputs: Value | None) -> Value | None:
        """The result of a new node, if its type rule admits it and it is not too large."""
        try:
            node = make_node(op, inputs, [op.name])
        except TypeRuleError:
            return None
        if not 0 < node.output.type.size <= MAX_ELEMENTS or node.macs() > MAX_MACS:
            return None
        self.nodes.append(node)
        self.pool.append(node.output)
        return node.output

    def product_sum(
        self, x: Value, shape: tuple[int, ...], axis: int, make: Callable[[ElementType], Op]
    ) -> Value | None:
        """A convolution or a fully connected layer, with an activation perhaps."""
        if math.prod(shape) > MAX_MACS:
            return None
        array = self.weights(shape, axis)
        channels, depth = shape[axis], array.size // shape[axis]
        with_bias = self.chance(0.8)
        if self.dtype is DType.FLOAT32:
            filters = self.constant(TensorType(self.dtype, shape), array)
            bias = self.constant(TensorType(self.dtype, (channels,)), self.rng.normal(size=channels))
            result = self.emit(make(self.element()), x, filters, bias if with_bias else None)
        else:
            assert x.type.quant is not None
            spread = (64 if self.dtype is DType.INT8 else 16000) * 64 * math.sqrt(depth)
            multiplier = {DType.INT8: 64, DType.INT16: 16000}[self.dtype] / spread
            if self.chance(0.15):  # far too small, far too large
                multiplier = float(2 ** self.rng.uniform(-20, 6))
            count = channels if self.chance(0.7) else 1
            spans = self.rng.uniform(*((-4, 0.5) if self.chance(0.1) else (-0.5, 0.2)), count)
            # Of the output, so that activations mostly leave something over.
            scale = 10 ** self.rng.uniform(-2, -0.5) / (1 if self.dtype is DType.INT8 else 256)
            factor = multiplier * scale / x.type.quant.scale
            scales = [float(np.float32(factor * 10**span)) for span in spans]
            quant = Quant(tuple(scales), (0,) * count, axis if count > 1 or channels == 1 else None)
            filters = self.constant(TensorType(DType.INT8, shape, quant), array)
            wide = self.dtype is DType.INT16 and self.chance(0.7)
            kind = DType.INT64 if wide else DType.INT32
            bias = self.constant(TensorType(kind, (channels,)), self._bias(array, axis, spread, channels))
            op = make(self.element(scale))
            result = self.emit(op, x, filters, bias if with_bias else None)
        if result is not None and self.chance(0.5):
            return self.clip(result)
        return result

    def _bias(self, array: Array, axis: int, spread: float, channels: int) -> Array:
        kind = self.number(0, 11)
        if kind == 0 and self.dtype is DType.INT8:  # as large as the accumulators allow
            others = tuple(i for i in range(array.ndim) if i != axis)
            reach = 255 * np.abs(array.astype(np.int64)).sum(axis=others)
            return self.rng.choice([-1, 1], channels) * ((1 << 31) - 1 - reach)
        return np.rint(self.rng.normal(0, 3 * spread if kind == 1 else spread / 4, channels))

    def conv2d(self, x: Value) -> Value | None:
        x = self.as_image(x)
        channels = x.type.shape[3]
        size, strides, dilations, padding = self.window((x.type.shape[1], x.type.shape[2]))
        divisors = [n for n in range(1, channels + 1) if channels % n == 0]
        groups = divisors[self.number(0, len(divisors) - 1)] if self.chance(0.15) else 1
        filters = groups * self.small(max(40 // groups, 2))
        return self.product_sum(
            x, (filters, *size, channels // groups), 0, lambda out: Conv2D(strides, dilations, padding, out)
        )

    def depthwise(self, x: Value) -> Value | None:
        x = self.as_image(x)
        size, strides, dilations, padding = self.window((x.type.shape[1], x.type.shape[2]))
        filters = x.type.shape[3] * ((1, 1, 1, 2, 3)[self.number(0, 4)])
        return self.product_sum(
            x, (1, *size, filters), 3, lambda out: DepthwiseConv2D(strides, dilations, padding, out)
        )

    def fully_connected(self, x: Value) -> None:
        rows = x.type.shape[0] if x.type.rank > 1 and self.chance(0.5) else 1
        matrix = self.emit(Reshape((rows, x.type.size // rows)), x)
        if matrix is not None:
            self.product_sum(matrix, (self.small(40), x.type.size // rows), 0, FullyConnected)

    def residual(self, x: Value) -> None:
        """``x + conv(x)`` or ``conv(x) + x``."""
        x = self.as_image(x)
        channels = x.type.shape[3]
        size = KERNELS[self.number(0, len(KERNELS) - 1)]
        rows, columns = (((n - 1) // 2, n - 1 - (n - 1) // 2) for n in size)
        if self.chance(0.5):
            result = self.product_sum(
                x, (channels, *size, channels), 0, lambda out: Conv2D((1, 1), (1, 1), (rows, columns), out)
            )
        else:
            result = self.product_sum(
                x, (1, *size, channels), 3, lambda out: DepthwiseConv2D((1, 1), (1, 1), (rows, columns), out)
            )
        if result is not None:
            pair = (x, result) if self.chance(0.5) else (result, x)
            total = self.emit(Add(self._like(*pair)), *pair)
            if total is not None and self.chance(0.5):
                self.clip(total)

    def _like(self, first: Value, second: Value) -> ElementType:
        if first.type.quant is None or second.type.quant is None or self.chance(0.2):
            return self.element()
        return self.element(max(first.type.quant.scale, second.type.quant.scale) * self.rng.uniform(0.7, 2))

    def binary(self, x: Value) -> None:
        alike = [value for value in self.pool if value.type.shape == x.type.shape]
        if self.chance(0.4):
            shape = tuple(1 if self.chance(0.4) else n for n in x.type.shape)
            shape = shape[self.number(0, len(shape) - 1) :] if shape and self.chance(0.4) else shape
            y = self.constant(self._type(shape), self._data(shape))
        else:
            y = alike[self.number(0, len(alike) - 1)]
        kind = self.number(0, 5)
        operands = (x, y) if self.chance(0.5) else (y, x)
        if kind <= 2:
            self.emit(Add(self._like(x, y)), *operands)
        elif kind == 3:
            self.emit(Sub(self._like(x, y)), *operands)
        elif kind == 4:
            scale = None
            if x.type.quant is not None and y.type.quant is not None:
                factor = (90 if self.dtype is DType.INT8 else 20000) * self.rng.uniform(0.3, 2)
                scale = x.type.quant.scale * y.type.quant.scale * factor
            self.emit(Mul(self.element(scale)), *operands)
        else:
            self.emit(Maximum(), *operands)

    def _type(self, shape: tuple[int, ...]) -> TensorType:
        return TensorType(self.dtype, shape).with_element(self.element())

    def _data(self, shape: tuple[int, ...]) -> Array:
        if self.dtype is DType.FLOAT32:
            return self.rng.normal(size=shape).astype(np.float32)
        return self.rng.integers(*self.dtype.range, shape, endpoint=True)

    def pool2d(self, x: Value) -> None:
        x = self.as_image(x)
        size, strides, _, padding = self.window((x.type.shape[1], x.type.shape[2]))
        padding = tuple(tuple(min(p, n - 1) for p in pair) for pair, n in zip(padding, size, strict=True))
        op = AveragePool2D if self.chance(0.5) else MaxPool2D
        result = self.emit(op(size, strides, padding), x)  # type: ignore[arg-type]
        if result is not None and self.chance(0.2):
            self.clip(result)

    def concatenate(self, x: Value) -> None:
        axis = self.number(0, x.type.rank - 1) if x.type.rank else 0

        def fits(value: Value) -> bool:
            shape, other = list(x.type.shape), list(value.type.shape)
            if value.type.element != x.type.element or len(shape) != len(other):
                return False
            del shape[axis], other[axis]
            return shape == other

        candidates = [value for value in self.pool if fits(value)]
        count = self.number(1, 2)
        others = [candidates[self.number(0, len(candidates) - 1)] for _ in range(count)]
        self.emit(Concatenate(axis), *((x, *others) if self.chance(0.5) else (*others, x)))

    def pad(self, x: Value) -> None:
        padding = tuple((self.number(0, 2), self.number(0, 2)) for _ in x.type.shape)
        if x.type.rank == 4 and self.chance(0.7):
            padding = ((0, 0), *padding[1:3], (0, 0))
        zero = 0 if x.type.quant is None else x.type.quant.zero_point
        self.emit(Pad(padding, float(zero if self.chance(0.7) else self.number(-128, 127))), x)

    def reshape(self, x: Value) -> None:
        self.emit(Reshape(x.type.shape[::-1] if self.chance(0.5) else (1, 1, 1, x.type.size)), x)

    def as_image(self, x: Value) -> Value:
        if x.type.rank == 4:
            return x
        size = x.type.size
        channels = [n for n in range(1, 41) if size % n == 0]
        depth = channels[self.number(0, len(channels) - 1)]
        rows = [n for n in range(1, 21) if size // depth % n == 0][-1]
        return self.emit(Reshape((1, rows, size // depth // rows, depth)), x) or x

    def clip(self, x: Value) -> Value | None:
        if x.type.quant is not None and x.type.quant.zero_point > 100 and self.chance(0.8):
            return x  # hardly any value is positive
        return self.emit(Clip(*CLIPS[self.number(0, 4) if self.chance(0.1) else self.number(0, 1)]), x)

    def unary(self, x: Value) -> None:
        kind = self.number(0, 6)
        if kind == 0:
            self.emit(Logistic(UNIT[self.dtype]), x)
        elif kind == 1:
            self.emit(Tanh(SIGNED_UNIT[self.dtype]), x)
        elif kind == 2:
            self.emit(LeakyRelu(float(self.rng.uniform(-0.5, 1.5)), self.element()), x)
        elif kind == 3:
            self.emit(Relu(0.0, 6.0, self.element()), x)
        elif kind == 4:
            self.emit(Requantize(self.element()), x)
        else:
            self.emit(Softmax(1.0, UNIT[self.dtype]), x)

    def mean(self, x: Value) -> None:
        axes = tuple(axis for axis in range(x.type.rank) if self.chance(0.5))
        if x.type.rank == 4 and self.chance(0.5):
            axes = (1, 2)
        scale = None if x.type.quant is None else x.type.quant.scale * self.rng.uniform(0.1, 1.5)
        if axes:
            self.emit(Mean(axes, self.chance(0.7), self.element(scale)), x)

    def slice(self, x: Value) -> None:
        begin = tuple(self.number(0, n - 1) for n in x.type.shape)
        strides = tuple(self.number(1, 2) for _ in begin)
        size = tuple(-(-(n - b) // s) for n, b, s in zip(x.type.shape, begin, strides, strict=True))
        self.emit(StridedSlice(begin, size, strides), x)

    def transpose(self, x: Value) -> None:
        self.emit(Transpose(tuple(int(i) for i in self.rng.permutation(x.type.rank))), x)

    def graph(self, nodes: int) -> Graph:
        count = 2 if self.chance(0.25) else 1
        inputs = [Value("input", self._type(self.image()))]
        if count == 2:
            shape = inputs[0].type.shape if self.chance(0.6) else self.image()
            inputs.append(Value("input", self._type(shape)))
        inputs = [value for value in inputs if value.type.size <= MAX_ELEMENTS] or [
            Value("input", self._type((1, 5, 7, 3)))
        ]
        self.pool += inputs
        for _ in range(20 * nodes):
            if sum(not isinstance(node.op, Clip | Reshape) for node in self.nodes) >= nodes:
                break
            recent = self.pool[-1] if self.chance(0.65) else self.pool[self.number(0, len(self.pool) - 1)]
            if recent.type.rank:
                self.steps[self.number(0, len(self.steps) - 1)](recent)
        outputs = [self.pool[-1]]
        if self.chance(0.3):
            outputs.append(self.pool[self.number(0, len(self.pool) - 1)])
        graph = Graph("net", tuple(inputs), tuple(outputs), tuple(self.nodes), self.constants)
        return graph.with_nodes(graph.nodes)


def random_network(seed: int, dtype: DType = DType.INT8) -> Graph:
    """A network of two to about ten nodes; equal seeds give equal networks."""
    builder = _Builder(seed, dtype)
    return builder.graph(builder.number(2, 8))


def merge(graphs: list[Graph], seed: int = 0) -> Graph:
    """One graph that computes them all, their nodes interleaved: one firmware image for many networks."""
    rng = np.random.default_rng(seed)
    queues = [list(graph.nodes) for graph in graphs]
    nodes: list[Node] = []
    while any(queues):
        queue = queues[int(rng.integers(len(queues)))]
        # Runs of nodes, so that most results still meet their readers early.
        for _ in range(min(len(queue), int(rng.integers(1, 6)))):
            nodes.append(queue.pop(0))
    constants = {value: array for graph in graphs for value, array in graph.constants.items()}
    inputs = tuple(dict.fromkeys(value for graph in graphs for value in graph.inputs))
    outputs = tuple(value for graph in graphs for value in graph.outputs)
    return Graph("nets", inputs, outputs, tuple(nodes), constants)
