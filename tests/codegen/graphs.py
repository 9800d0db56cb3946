"""Small graphs that need little of the kernels and much of what is around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from microfold.ir.graph import Graph, State
from microfold.ir.node import EpilogueStep, Node, Value, make_node
from microfold.ir.types import Array, DType, Quant, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.mul import Mul
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.reshape import Reshape
from tests.kernels.graphs import NO_PADDING, RELU, float_input, int8_element, int8_input


class Builder:
    """Nodes with random constants."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.constants: dict[Value, Array] = {}

    def weights(self, name: str, shape: tuple[int, ...]) -> Value:
        quant = Quant((float(np.float32(0.01)),) * shape[0], (0,) * shape[0], 0)
        return self._constant(name, TensorType(DType.INT8, shape, quant), self.rng.integers(-127, 128, shape))

    def bias(self, name: str, length: int) -> Value:
        array = self.rng.integers(-3000, 3000, length)
        return self._constant(name, TensorType(DType.INT32, (length,)), array)

    def floats(self, name: str, shape: tuple[int, ...]) -> Value:
        return self._constant(name, TensorType(DType.FLOAT32, shape), self.rng.normal(size=shape))

    def _constant(self, name: str, t: TensorType, array: Array) -> Value:
        value = Value(name, t)
        self.constants[value] = array.astype(t.dtype.numpy)
        return value

    def dense(self, x: Value, units: int, name: str, relu: bool = False) -> Node:
        inputs = [x, self.weights(f"{name}/w", (units, x.type.shape[1])), self.bias(f"{name}/b", units)]
        return make_node(FullyConnected(int8_element()), inputs, [name], [EpilogueStep(RELU)] if relu else [])

    def conv(self, x: Value, filters: int, size: int, name: str) -> Node:
        inputs = [
            x,
            self.weights(f"{name}/w", (filters, size, size, x.type.shape[3])),
            self.bias(f"{name}/b", filters),
        ]
        op = Conv2D((1, 1), (1, 1), NO_PADDING, int8_element())
        return make_node(op, inputs, [name], [EpilogueStep(RELU)])

    def graph(
        self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], nodes: Sequence[Node],
        state: Sequence[State] = (),
    ) -> Graph:  # fmt: skip
        return Graph(name, tuple(inputs), tuple(outputs), tuple(nodes), self.constants, tuple(state))


def chain(
    name: str = "net", layers: Sequence[str] = ("net/conv_a", "net/conv_b", "net/logits"), seed: int = 0
) -> Graph:
    """Two convolutions, a view, a fully connected layer."""
    b = Builder(seed)
    x = int8_input("serving_default_x:0", (1, 6, 6, 3))
    first = b.conv(x, 4, 3, layers[0])
    second = b.conv(first.output, 5, 1, layers[1])
    flat = make_node(Reshape((1, 80)), [second.output], ["flat"])
    last = b.dense(flat.output, 7, layers[2])
    return b.graph(name, [x], [last.output], [first, second, flat, last])


def dense_chain(name: str, input_name: str, layers: Sequence[str]) -> Graph:
    """Fully connected layers with the given tensor names."""
    b = Builder()
    x = int8_input(input_name, (1, 4))
    nodes: list[Node] = []
    for index, layer in enumerate(layers):
        nodes.append(b.dense(nodes[-1].output if nodes else x, 4 + index % 3, layer))
    return b.graph(name, [x], [nodes[-1].output], nodes)


def several_outputs() -> Graph:
    """An output that later layers read, one that is a view of another, one twice, and the input itself."""
    b = Builder(1)
    x = int8_input("x", (1, 8))
    early = b.dense(x, 6, "early")
    late = b.dense(early.output, 4, "late")
    view = make_node(Reshape((2, 3)), [early.output], ["view"])
    outputs = [early.output, late.output, view.output, late.output, x]
    return b.graph("outputs", [x], outputs, [early, late, view])


def two_inputs() -> Graph:
    """Two inputs, one of them read by the last layer too, and one that nothing reads."""
    b = Builder(2)
    left, right, unread = (
        int8_input("left", (1, 6)),
        int8_input("right", (1, 6), 0.2, -7),
        float_input("unread", (3,)),
    )
    added = make_node(Add(int8_element()), [left, right], ["added"])
    dense = b.dense(added.output, 6, "dense")
    result = make_node(Add(int8_element()), [dense.output, right], ["result"])
    return b.graph("two", [left, right, unread], [result.output], [added, dense, result])


def accumulator() -> Graph:
    """Float state: a running sum that starts at numbers, one that starts at zero, one that never changes."""
    b = Builder(3)
    x = float_input("x", (1, 5))
    t = x.type
    total, product, fixed = (Value(name, t) for name in ("total", "product", "fixed"))
    start = np.arange(5, dtype=np.float32).reshape(1, 5)
    add = make_node(Add(t.element), [total, x], ["next_total"])
    scaled = make_node(Mul(t.element), [add.output, fixed], ["scaled"])
    more = make_node(Add(t.element), [product, scaled.output], ["next_product"])
    state = [
        State(total, start, add.output),
        State(product, np.zeros((1, 5), np.float32), more.output),
        State(fixed, start + 1, fixed),
    ]
    return b.graph("accumulator", [x], [scaled.output, product], [add, scaled, more], state)


def swapped_states() -> Graph:
    """Two states that become each other: the copies at the end of a run must not see each other's results."""
    b = Builder(4)
    x = float_input("x", (4,))
    one, other = Value("one", x.type), Value("other", x.type)
    add = make_node(Add(x.type.element), [one, x], ["sum"])
    state = [State(one, np.ones(4, np.float32), other), State(other, np.full(4, 2, np.float32), one)]
    return b.graph("swapped", [x], [add.output], [add], state)


def constant_operand() -> Graph:
    """An operand from flash, and infinities in a layer's description."""
    b = Builder(5)
    x = float_input("x", (2, 3))
    add = make_node(Add(x.type.element), [x, b.floats("offset", (2, 3))], ["shifted"])
    return b.graph("operand", [x], [add.output], [add])


# Those with inputs, outputs and states of all kinds.
PORTS_AND_STATES = (chain, several_outputs, two_inputs, accumulator, swapped_states, constant_operand)
