"""Families of graphs of any size, to see how work grows with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from microfold.ir.graph import Graph, State
from microfold.ir.node import Node, Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.control.call import Call
from microfold.ops.control.control_flow import If
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.mul import Mul
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean

FLOAT = ElementType(DType.FLOAT32)
INT8 = ElementType(DType.INT8, Quant.per_tensor(0.05, 3))
NO_PADDING = ((0, 0), (0, 0))
IMAGE = (1, 2, 3, 4)


class Builder:
    """A graph of about `size` nodes in the making."""

    def __init__(self, size: int):
        self.size = size
        self.rng = np.random.default_rng(size)
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.state: list[State] = []
        self.subgraphs: dict[str, Graph] = {}

    def input(self, shape: tuple[int, ...] = IMAGE, element: ElementType = FLOAT) -> Value:
        value = Value(f"x{len(self.inputs)}", TensorType(element.dtype, shape, element.quant))
        self.inputs.append(value)
        return value

    def constant(self, shape: tuple[int, ...], element: ElementType = FLOAT) -> Value:
        value = Value(f"c{len(self.constants)}", TensorType(element.dtype, shape, element.quant))
        dtype = np.dtype(element.dtype.numpy)
        wide = (
            self.rng.uniform(0.5, 1.5, shape) if element.dtype.is_float else self.rng.integers(-90, 90, shape)
        )
        self.constants[value] = np.asarray(wide).astype(dtype)
        return value

    def emit(self, op: Op, *inputs: Value | None) -> Value:
        return self.emit_all(op, *inputs)[0]

    def emit_all(self, op: Op, *inputs: Value | None) -> tuple[Value, ...]:
        number = len(self.nodes)
        count = len(op.infer_all([v.type if v is not None else None for v in inputs]))
        names = [f"v{number}" if index == 0 else f"v{number}_{index}" for index in range(count)]
        self.nodes.append(make_node(op, inputs, names))
        return self.nodes[-1].outputs

    def graph(self, *outputs: Value) -> Graph:
        return Graph(
            "g",
            tuple(self.inputs),
            outputs,
            tuple(self.nodes),
            self.constants,
            tuple(self.state),
            self.subgraphs,
        )

    def conv(self, x: Value, size: int = 1, layout: str = "NHWC") -> Value:
        channels = x.type.shape[layout.index("C")]
        element = ElementType(x.type.dtype, x.type.quant)
        shape = (channels, size, size, channels)
        weights = self.constant(
            shape, FLOAT if element == FLOAT else ElementType(DType.INT8, Quant.per_tensor(0.01, 0))
        )
        half = size // 2
        return self.emit(Conv2D((1, 1), (1, 1), ((half, half), (half, half)), element, layout), x, weights)

    def depthwise(self, x: Value) -> Value:
        element = ElementType(x.type.dtype, x.type.quant)
        weights = self.constant(
            (1, 1, 1, x.type.shape[3]), ElementType(DType.INT8, Quant.per_tensor(0.01, 0))
        )
        return self.emit(DepthwiseConv2D((1, 1), (1, 1), NO_PADDING, element), x, weights)

    def tanh(self, x: Value) -> Value:
        return self.emit(Tanh(FLOAT), x)

    def add(self, a: Value, b: Value) -> Value:
        return self.emit(Add(ElementType(a.type.dtype, a.type.quant)), a, b)

    def sum(self, values: Sequence[Value]) -> Value:
        total = values[0]
        for value in values[1:]:
            total = self.add(total, value)
        return total


Family = Callable[[Builder], Graph]
FAMILIES: dict[str, Family] = {}


def family(build: Family) -> Family:
    """Decorator: a family of its function's name."""
    FAMILIES[build.__name__] = build
    return build


def build(name: str, size: int) -> Graph:
    """The member of a family that has about so many nodes."""
    return FAMILIES[name](Builder(size))


def _chain(name: str, *ops: Op, shape: tuple[int, ...] = IMAGE, element: ElementType = FLOAT) -> None:
    """A family: operators of one operand in a row."""

    def build(b: Builder) -> Graph:
        x = b.input(shape, element)
        for index in range(b.size):
            x = b.emit(ops[index % len(ops)], x)
        return b.graph(x)

    FAMILIES[name] = build


_chain("clips", Clip(0.0, 6.0), Clip(1.0, 7.0), element=INT8)
_chain("activations", Tanh(FLOAT), LeakyRelu(0.1, FLOAT))
_chain("transposed_softmax", Transpose((0, 2, 3, 1)), Softmax(1.0, FLOAT))
_chain("transposed_elementwise", Transpose((0, 2, 3, 1)), Tanh(FLOAT))
_chain("transposes", Transpose((0, 2, 3, 1)), Transpose((0, 1, 3, 2)))
_chain("transposed_pools", Transpose((0, 3, 1, 2)), MaxPool2D((1, 1), (1, 1), NO_PADDING), Tanh(FLOAT))
_chain("reshapes", Reshape((1, 24)), Reshape((1, 2, 12)), Reshape(IMAGE), element=INT8)
_chain("reshaped_transposes", Reshape((1, 6, 4)), Transpose((0, 2, 1)), Reshape((1, 4, 2, 3)), Tanh(FLOAT))
_chain("casts", Cast(DType.INT32), Cast(DType.FLOAT32))
_chain("quantizes", Quantize(INT8), Dequantize())
_chain(
    "requantizes",
    Requantize(ElementType(DType.INT8, Quant.per_tensor(0.06, 1))),
    Requantize(INT8),
    element=INT8,
)
_chain(
    "pads",
    Pad(((0, 0), (1, 1), (0, 0), (0, 0)), 3.0),
    AveragePool2D((3, 1), (1, 1), NO_PADDING),
    element=INT8,
)
_chain("slices", Pad(((0, 0), (1, 0), (1, 0), (0, 0)), 0.0), StridedSlice((0, 1, 1, 0), IMAGE, (1, 1, 1, 1)))
_chain("means", Mean((1, 2), True, FLOAT), LeakyRelu(0.2, FLOAT))


_chain("image_softmax", Softmax(1.0, FLOAT), shape=(1, 9, 4, 4))
_chain("pad_rows", Pad(((0, 0), (0, 1), (0, 0), (0, 0)), 0.0), Pad(((0, 0), (1, 0), (0, 0), (0, 0)), 0.0))


@family
def splits(b: Builder) -> Graph:
    """Parts of one value, each an output."""
    x = b.input((b.size, 8), INT8)
    parts = (b.emit(StridedSlice((index, 0), (1, 8), (1, 1)), x) for index in range(b.size))
    return b.graph(*parts)


@family
def far_scales(b: Builder) -> Graph:
    """One that gets nowhere, which is known only where its way ends."""
    x = b.input()
    for _ in range(b.size):
        x = b.emit(LeakyRelu(0.1, FLOAT), x)
    return b.graph(b.emit(Mul(FLOAT), x, b.constant((4,))))


@family
def tables(b: Builder) -> Graph:
    """Of integers: a long chain, and a ladder whose every rung reads the same two values."""
    x = y = b.input(IMAGE, INT8)
    other, shared = b.input(IMAGE, INT8), b.emit(LeakyRelu(0.3, INT8), b.input(IMAGE, INT8))
    for index in range(b.size // 4):
        x = b.emit(LeakyRelu(0.01 * (index % 50), INT8), x)
        y = b.add(b.add(y, other), shared)
    return b.graph(x, y)


@family
def quantized_scales(b: Builder) -> Graph:
    """Products behind a layer, one by one."""
    x = b.conv(b.input(IMAGE, INT8))
    for _ in range(b.size):
        x = b.emit(Mul(INT8), x, b.constant((4,), ElementType(DType.INT8, Quant.per_tensor(0.01, 0))))
    return b.graph(x)


@family
def moved_integers(b: Builder) -> Graph:
    """Through float, in a tower of parts that quantize enters and in a row that dequantize passes."""
    x = b.emit(Dequantize(), b.input(IMAGE, INT8))
    y = b.emit(Dequantize(), b.input((1, 2, 3, b.size), ElementType(DType.INT8, Quant.per_tensor(0.1, 0))))
    for index in range(b.size // 6):
        x = b.emit(Transpose((0, 3, 2, 1)), b.emit(MaxPool2D((1, 1), (1, 1), NO_PADDING), x))
        part = b.emit(StridedSlice((0, 0, 0, index), (1, 2, 3, 1), (1, 1, 1, 1)), b.tanh(y))
        y = b.emit(Concatenate(3), y, b.emit(Dequantize(), b.input((1, 2, 3, 1), INT8)), part)
    return b.graph(x, b.emit(Quantize(INT8), y))


@family
def transposed_parts(b: Builder) -> Graph:
    """Of one concatenation."""
    x = b.input()
    parts = [
        b.emit(Transpose((0, 3, 1, 2)), b.emit(LeakyRelu(0.01 * i, FLOAT), x)) for i in range(b.size // 2)
    ]
    return b.graph(b.emit(Transpose((0, 2, 3, 1)), b.emit(Concatenate(0), *parts)))


@family
def hoisted_clips(b: Builder) -> Graph:
    """Behind a long row of movements each, and behind each other."""
    x = b.add(b.input(IMAGE, INT8), b.input(IMAGE, INT8))
    for index in range(b.size // 5):
        x = b.emit(Pad(((0, 0), (0, 0), (0, 0), (0, 1)), 9.0), b.emit(Transpose((0, 2, 1, 3)), x))
        x = b.emit(
            StridedSlice((0, 0, 0, 1), x.type.with_shape((*x.type.shape[:3], 4)).shape, (1, 1, 1, 1)), x
        )
        x = b.emit(Clip(0.0, 1.0 + index), x) if index % 8 == 7 else b.emit(Transpose((0, 2, 1, 3)), x)
    return b.graph(x)


@family
def layers_side_by_side(b: Builder) -> Graph:
    """Of one image, and slices of it that are neighbours."""
    x = b.input((1, 2, 3, b.size // 2), INT8)
    cuts = [
        b.emit(StridedSlice((0, 0, 0, index), (1, 2, 3, 1), (1, 1, 1, 1)), x) for index in range(b.size // 2)
    ]
    y = b.input(IMAGE, INT8)
    return b.graph(
        b.emit(Concatenate(3), *cuts), b.emit(Concatenate(3), *(b.conv(y) for _ in range(b.size // 2)))
    )


@family
def unread_channels(b: Builder) -> Graph:
    """The last layer leaves channels unread that all before it have."""
    x = b.input(IMAGE, INT8)
    for index in range(b.size):
        x = b.emit(Requantize(ElementType(DType.INT8, Quant.per_tensor(0.05 + 0.01 * (index % 2), 3))), x)
    y = b.conv(x)
    weights = b.nodes[-1].inputs[1]
    assert weights is not None
    b.constants[weights] = b.constants[weights] * np.array([0, 1, 1, 0], np.int8)
    return b.graph(y)


@family
def products_of_sums(b: Builder) -> Graph:
    """A product of a long sum."""
    x = b.input((2, 3))
    total = b.sum([b.emit(LeakyRelu(0.01 * i, FLOAT), x) for i in range(b.size // 2)])
    return b.graph(b.emit(BatchMatmul(False, False, FLOAT), total, b.constant((3, 3))))


@family
def views(b: Builder) -> Graph:
    """Each a part of the one before; in the end one element is left."""
    x = b.input((1, b.size + 1))
    for index in range(b.size):
        x = b.emit(StridedSlice((0, 1), (1, b.size - index), (1, 1)), x)
    return b.graph(x)


@family
def convolutions(b: Builder) -> Graph:
    """With activations, int8."""
    x = b.input(IMAGE, INT8)
    for _ in range(b.size // 3):
        x = b.emit(Clip(0.0, 6.0), b.depthwise(b.conv(x)))
    return b.graph(x)


@family
def channels_first(b: Builder) -> Graph:
    """Convolutions in the layout that kernels do not compute."""
    x = b.input()
    for _ in range(b.size // 2):
        x = b.tanh(b.conv(x, layout="NCHW"))
    return b.graph(x)


@family
def residual(b: Builder) -> Graph:
    """A tower of blocks with a way around each."""
    x = b.input(IMAGE, INT8)
    for _ in range(b.size // 4):
        x = b.add(x, b.conv(b.emit(Clip(0.0, 6.0), b.conv(x, 3))))
    return b.graph(x)


@family
def parallel_convolutions(b: Builder) -> Graph:
    """Of one image, added up."""
    x = b.input()
    return b.graph(b.sum([b.conv(x) for _ in range(b.size // 2)]))


@family
def scales(b: Builder) -> Graph:
    """Products and sums with constants between convolutions (`axis_messages`)."""
    x = b.input()
    for index in range(b.size // 4):
        x = b.emit(Mul(FLOAT), b.conv(x), b.constant((4,)))
        x = b.emit(LeakyRelu(0.1, FLOAT), b.add(x, b.constant((4,))) if index % 2 else x)
    return b.graph(x)


@family
def blocked_scales(b: Builder) -> Graph:
    """Scales, each of which can go nowhere."""
    x = b.input()
    for _ in range(b.size // 2):
        x = b.emit(Mul(FLOAT), b.tanh(x), b.constant((4,)))
    return b.graph(x)


@family
def distant_scales(b: Builder) -> Graph:
    """Scales in front of one convolution, each of which blocks what is behind it."""
    x = b.conv(b.input())
    ends = []
    for _ in range(b.size // 3):
        x = b.emit(LeakyRelu(0.1, FLOAT), x)
        ends.append(b.emit(Mul(FLOAT), x, b.constant((4,))))
    return b.graph(b.sum(ends))


@family
def scaled_ladder(b: Builder) -> Graph:
    """As many ways as there are subsets of rungs, from one scale to one product."""
    x = b.input((1, 2))
    x = b.emit(FullyConnected(FLOAT), x, b.constant((2, 2)))
    for _ in range(b.size // 2):
        x = b.add(x, b.emit(LeakyRelu(0.1, FLOAT), x))
    return b.graph(b.emit(Mul(FLOAT), x, b.constant((2,))))


@family
def unscaled_ladder(b: Builder) -> Graph:
    """The scale in front."""
    x = b.emit(Mul(FLOAT), b.input((1, 2)), b.constant((2,)))
    for _ in range(b.size // 2):
        x = b.add(x, b.emit(LeakyRelu(0.1, FLOAT), x))
    return b.graph(b.emit(FullyConnected(FLOAT), x, b.constant((2, 2))))


@family
def transposed_ladder(b: Builder) -> Graph:
    """Diamonds with a transpose on each way."""
    x = b.input()
    for index in range(b.size // 3):
        turn = (0, 3, 1, 2) if index % 2 else (0, 2, 3, 1)
        y = b.emit(Transpose(turn), x)
        x = b.add(y, b.tanh(y))
    return b.graph(x)


@family
def transposed_fan(b: Builder) -> Graph:
    """One transpose read by many, each of which turns it back."""
    y = b.emit(Transpose((0, 3, 1, 2)), b.input())
    ends = [
        b.emit(Transpose((0, 2, 3, 1)), b.emit(LeakyRelu(0.01 * i, FLOAT), y)) for i in range(b.size // 3)
    ]
    return b.graph(b.sum(ends))


@family
def mixed_transposes(b: Builder) -> Graph:
    """Transposes among operators that let them pass and operators that do not."""
    x = b.input((1, 4, 4, 4))
    turns = ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (0, 1, 3, 2))
    for index in range(b.size // 4):
        x = b.tanh(b.emit(Transpose(turns[index % 4]), x))
        x = b.emit(Softmax(1.0, FLOAT), x) if index % 3 else b.emit(LeakyRelu(0.1, FLOAT), x)
        x = b.conv(x) if index % 5 == 0 else b.add(x, b.constant((4,)))
    return b.graph(x)


@family
def fan(b: Builder) -> Graph:
    """Many readers of one value, joined at once."""
    x = b.input()
    parts = [b.emit(LeakyRelu(0.001 * i, FLOAT), x) for i in range(b.size)]
    return b.graph(b.emit(Concatenate(0), *parts))


@family
def tree(b: Builder) -> Graph:
    """Pairs of values are added, pairs of the sums, and so on."""
    values = [b.input((1, 4)) for _ in range(2)]
    values = [b.emit(LeakyRelu(0.001 * i, FLOAT), values[i % 2]) for i in range(b.size // 2)]
    while len(values) > 1:
        rest = [values[-1]] if len(values) % 2 else []
        values = [b.add(x, y) for x, y in zip(values[::2], values[1::2], strict=False)] + rest
    return b.graph(values[0])


@family
def concatenations(b: Builder) -> Graph:
    """Of halves of one before."""
    x = b.input((1, 8))
    for _ in range(b.size // 4):
        halves = [b.emit(StridedSlice((0, at), (1, 4), (1, 1)), x) for at in (4, 0)]
        x = b.emit(Concatenate(1), b.tanh(halves[0]), halves[1])
    return b.graph(x)


@family
def growing_concatenations(b: Builder) -> Graph:
    """Each of the one before and something small."""
    x = y = b.input((1, 2))
    for _ in range(b.size // 2):
        y = b.tanh(y)
        x = b.emit(Concatenate(1), x, y)
    return b.graph(x)


@family
def skips(b: Builder) -> Graph:
    """What the first half computes is read by the second, backwards."""
    x = b.input()
    kept = []
    for _ in range(b.size // 3):
        x = b.tanh(x)
        kept.append(x)
    for value in reversed(kept):
        x = b.add(b.emit(LeakyRelu(0.1, FLOAT), x), value)
    return b.graph(x)


@family
def outputs(b: Builder) -> Graph:
    """Every value is one."""
    x = b.input()
    ends = []
    for _ in range(b.size):
        x = b.tanh(x)
        ends.append(x)
    return b.graph(*ends)


@family
def aliases(b: Builder) -> Graph:
    """Outputs that are other outputs, and inputs."""
    x = b.input()
    ends = [b.emit(Reshape((1, 24)), x) for _ in range(b.size)]
    return b.graph(x, *ends)


@family
def constants(b: Builder) -> Graph:
    """One for each node."""
    x = b.input()
    for _ in range(b.size // 2):
        x = b.tanh(b.add(x, b.constant(IMAGE)))
    return b.graph(x)


@family
def folded(b: Builder) -> Graph:
    """Nodes whose operands are constants."""
    x = b.constant(IMAGE)
    for _ in range(b.size):
        x = b.tanh(x)
    return b.graph(b.add(b.input(), x))


@family
def matrices(b: Builder) -> Graph:
    """Products of what is computed, with transposes."""
    x = b.input((2, 3, 3))
    for _ in range(b.size // 3):
        x = b.tanh(b.emit(BatchMatmul(False, False, FLOAT), x, b.emit(Transpose((0, 2, 1)), x)))
    return b.graph(x)


@family
def constant_matrices(b: Builder) -> Graph:
    """A row of products, which may be taken in any order."""
    x = b.input((3, 3))
    for _ in range(b.size):
        x = b.emit(BatchMatmul(False, False, FLOAT), x, b.constant((3, 3)))
    return b.graph(x)


@family
def matrix_chain(b: Builder) -> Graph:
    """Products of inputs, a long row."""
    x = b.input((3, 3))
    ys = [b.input((3, 3)) for _ in range(3)]
    for index in range(b.size):
        x = b.emit(BatchMatmul(False, False, FLOAT), x, ys[index % 3])
    return b.graph(x)


@family
def fully_connected(b: Builder) -> Graph:
    """Layers, quantised."""
    x = b.input((1, 6), INT8)
    for _ in range(b.size // 2):
        weights = b.constant((6, 6), ElementType(DType.INT8, Quant.per_tensor(0.01, 0)))
        x = b.emit(Clip(0.0, 6.0), b.emit(FullyConnected(INT8), x, weights))
    return b.graph(x)


@family
def equal(b: Builder) -> Graph:
    """Two chains of equal nodes, which become one."""
    one = two = b.input()
    for _ in range(b.size // 2):
        one, two = b.tanh(one), b.tanh(two)
    return b.graph(b.add(one, two))


@family
def dead(b: Builder) -> Graph:
    """Most nodes are for nothing."""
    x = y = b.input()
    for _ in range(b.size):
        y = b.tanh(y)
    return b.graph(b.tanh(x))


@family
def gathers(b: Builder) -> Graph:
    """Rows by constant indices, behind products."""
    x = b.input((4, 4))
    for _ in range(b.size // 2):
        indices = Value("i", TensorType(DType.INT32, (4,)))
        b.constants[indices] = np.array([1, 0, 3, 2], np.int32)
        x = b.emit(Gather(0), b.emit(FullyConnected(FLOAT), x, b.constant((4, 4))), indices)
    return b.graph(x)


@family
def states(b: Builder) -> Graph:
    """Each becomes what the one before it was."""
    x = b.input((1, 4))
    for _ in range(b.size // 2):
        value = Value(f"s{len(b.state)}", x.type)
        x = b.emit(LeakyRelu(0.1, FLOAT), b.add(x, value))
        b.state.append(State(value, np.ones((1, 4), np.float32), x))
    return b.graph(x)


@family
def calls(b: Builder) -> Graph:
    """Of one body."""
    inner = Builder(2)
    x = inner.input()
    b.subgraphs["body"] = inner.graph(inner.tanh(x))
    y = b.input()
    for _ in range(b.size):
        y = b.emit(Call("body", (y.type,)), y)
    return b.graph(y)


@family
def conditions(b: Builder) -> Graph:
    """Computed by the model; each with bodies of its own."""
    y = b.input()
    condition = Value("condition", TensorType(DType.BOOL, ()))
    b.inputs.append(condition)
    for index in range(b.size // 4):
        for branch in ("then", "otherwise"):
            inner = Builder(2)
            x = inner.input()
            slope = 0.1 if branch == "then" else 0.2
            b.subgraphs[f"{branch}{index}"] = inner.graph(inner.emit(LeakyRelu(slope, FLOAT), x))
        y = b.emit(If(f"then{index}", f"otherwise{index}", (y.type,)), condition, y)
    return b.graph(y)
