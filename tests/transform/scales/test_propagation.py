"""Scales and shifts on random float32 graphs, with branches and shared readers."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph, verify
from microfold.ir.node import Node, Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, ElementType, Shape, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.div import Div
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import Unary
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.reduce.mean import Mean
from microfold.ops.reduce.reduce import ReduceMax
from microfold.transform.scales.backward_fold_scale_axis import backward_fold_scale_axis
from microfold.transform.scales.fold_batchnorm_to_conv2d import fold_batchnorm_to_conv2d
from microfold.transform.scales.fold_scale_axis import fold_scale_axis
from microfold.transform.scales.fold_shift_axis import fold_shift_axis
from microfold.transform.scales.forward_fold_scale_axis import forward_fold_scale_axis
from microfold.transform.simplify.canonicalize_ops import canonicalize_ops
from tests.draws import integers, pick
from tests.evaluation import assert_same_meaning

FLOAT = ElementType(DType.FLOAT32)
TOLERANCE = 1e-5
PASSES = [
    backward_fold_scale_axis,
    forward_fold_scale_axis,
    fold_scale_axis,
    fold_shift_axis,
    fold_batchnorm_to_conv2d,
    canonicalize_ops,
]
many = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=100)


class _Builder:
    def __init__(self, draw: st.DrawFn):
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        shape = (1, 3, draw(st.integers(2, 3)), draw(st.integers(1, 3)))
        self.input = Value("x", TensorType(DType.FLOAT32, shape))
        self.pool = [self.input]

    def number(self, low: int, high: int) -> int:
        return self.draw(integers(low, high))

    def constant(self, *shape: int, positive: bool = False) -> Value:
        value = Value(f"c{len(self.constants)}", TensorType(DType.FLOAT32, shape))
        data = self.rng.uniform(0.5, 1.5, shape)
        signs = self.rng.choice([-1.0, 1.0], shape)
        self.constants[value] = np.asarray(data if positive else data * signs, np.float32)
        return value

    def emit(self, op: Op, *inputs: Value | None) -> None:
        try:
            node = make_node(op, inputs, [f"v{len(self.nodes)}"])
        except TypeRuleError:
            return
        if 0 < node.output.type.size <= 400:
            self.nodes.append(node)
            self.pool.append(node.output)

    def along(self, shape: Shape) -> Value:
        """A constant to multiply by or to add: per channel, along another axis, for all, for each."""
        axis = len(shape) - 1 if self.number(0, 3) else self.number(0, len(shape) - 1)
        kept = tuple(n if i == axis else 1 for i, n in enumerate(shape))
        chosen = (kept, kept, kept[axis:], (), shape)[self.number(0, 4)]
        value = self.constant(*chosen, positive=self.number(0, 3) > 0)
        if self.number(0, 9) == 0 and value.type.size > 1:
            data = self.constants[value].copy()
            data.flat[0] = 0.0
            self.constants[value] = data
        return value

    def step(self) -> None:
        x = pick(self.draw, self.pool[-4:])
        shape, rank = x.type.shape, x.type.rank
        other = pick(self.draw, [v for v in self.pool if v.type.shape == shape])
        kind = self.number(0, 30)
        if kind < 8:
            operands = [x, self.along(shape)]
            op = (Mul, Mul, Mul, Add, Add, Sub, Div, Mul)[kind]
            if op is not Div and self.number(0, 1):
                operands.reverse()
            if op is not Div or np.all(self.constants[operands[1]] != 0):
                self.emit(op(FLOAT), *operands)
        elif kind < 12:
            self.emit((Add(FLOAT), Sub(FLOAT), Maximum(), Mul(FLOAT))[kind - 8], x, other)
        elif kind == 12:
            self.emit(Clip(0.0, float("inf")), x)
        elif kind == 13:
            self.emit(LeakyRelu(0.25, FLOAT), x)
        elif kind == 14:
            self.emit(pick(self.draw, [Clip(-1.0, 6.0), Unary("neg", FLOAT), Abs(FLOAT)]), x)
        elif kind == 15:
            self.emit(Concatenate(self.number(0, rank - 1)), x, other)
        elif kind == 16:
            self.emit(Transpose(tuple(self.draw(st.permutations(range(rank))))), x)
        elif kind == 17:
            self.emit(
                Reshape(
                    (1, x.type.size) if self.number(0, 1) else (1, 1, -(-x.type.size // shape[-1]), shape[-1])
                ),
                x,
            )
        elif kind == 18:
            pairs = tuple((self.number(0, 1), self.number(0, 1)) for _ in shape)
            self.emit(Pad(pairs, float(self.number(0, 3) == 3)), x)
        elif kind == 19:
            axes = tuple(sorted(self.draw(st.sets(st.integers(0, rank - 1), max_size=rank - 1))))
            keep = bool(self.number(0, 1))
            self.emit(Mean(axes, keep, FLOAT) if self.number(0, 1) else ReduceMax(axes, keep), x)
        elif kind == 20:
            stride = pick(self.draw, [1, -1])
            begin = tuple(self.number(0, n - 1) for n in shape)
            size = tuple(n - b if stride == 1 else b + 1 for n, b in zip(shape, begin, strict=True))
            self.emit(StridedSlice(begin, size, (stride,) * rank), x)
        elif kind == 21:
            self.emit(Prelu(FLOAT), x, self.constant(shape[-1]))
        elif rank == 2:
            units = self.number(1, 4)
            if self.number(0, 2):
                bias = self.constant(units) if self.number(0, 1) else None
                self.emit(FullyConnected(FLOAT), x, self.constant(units, shape[1]), bias)
            else:
                self.emit(BatchMatmul(False, True, FLOAT), x, self.constant(units, shape[1]))
        elif rank == 4:
            self.image_step(x)

    def image_step(self, x: Value) -> None:
        channels, size = x.type.shape[3], (self.number(1, 2), self.number(1, 3))
        border = ((self.number(0, 1), 0), (0, 0))
        kind = self.number(0, 5)
        if kind == 0:
            op = MaxPool2D if self.number(0, 1) else AveragePool2D
            self.emit(op((2, 2), (1, 1), border), x)
        elif kind == 1:
            filters = channels * self.number(1, 2)
            bias = self.constant(filters) if self.number(0, 1) else None
            self.emit(
                DepthwiseConv2D((1, 1), (1, 1), border, FLOAT), x, self.constant(1, *size, filters), bias
            )
        elif kind == 2:
            op = TransposeConv2D((2, 2), (0, 0), (6, 6), FLOAT)
            self.emit(op, x, self.constant(2, *size, channels))
        else:
            depth = pick(self.draw, [d for d in range(1, channels + 1) if channels % d == 0])
            filters = channels // depth * self.number(1, 2)
            bias = self.constant(filters) if self.number(0, 1) else None
            self.emit(Conv2D((1, 1), (1, 1), border, FLOAT), x, self.constant(filters, *size, depth), bias)

    def graph(self) -> Graph:
        for _ in range(self.number(2, 14)):
            self.step()
        outputs = [self.pool[-1], *self.draw(st.lists(st.sampled_from(self.pool), max_size=1))]
        graph = Graph("g", (self.input,), tuple(outputs), tuple(self.nodes), self.constants)
        return graph.with_nodes(graph.nodes)


@st.composite
def float_graphs(draw: st.DrawFn) -> Graph:
    return _Builder(draw).graph()


@many
@given(graph=float_graphs())
def test_meaning_types_and_idempotence(graph: Graph) -> None:
    """Of each pass on its own, all on the same graphs: drawing them takes the time."""
    verify(graph)
    before = Counter(node.op.name for node in graph.nodes)
    for step in PASSES:
        result = step(graph)
        if result is graph:
            continue
        verify(result)
        try:
            assert_same_meaning(graph, result, tolerance=TOLERANCE, may_cancel=True)
        except AssertionError as error:
            raise AssertionError(f"{step.name} changed the meaning: {error}") from None
        assert step(result) is result, f"{step.name}: a second run finds more to do"
        if step is not canonicalize_ops:
            after = Counter(node.op.name for node in result.nodes)
            assert not after - before, f"{step.name} folds, but has made a node"
