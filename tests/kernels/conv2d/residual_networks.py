"""Random networks of convolutions whose results are added to what was computed before."""

from __future__ import annotations

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, Node, Value, make_node
from microfold.ir.types import Array, ElementType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from tests.kernels import graphs

KERNELS = ((1, 1), (1, 1), (3, 3), (3, 3), (5, 5), (1, 7), (2, 2))
CLIPS = (None, None, Clip(0.0, 6.0), Clip(0.0, float("inf")), Clip(-1.0, 1.0), Clip(1.0, 1.0))


class _Builder:
    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}

    def number(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def element(self) -> ElementType:
        return graphs.int8_element(
            float(np.float32(10 ** self.rng.uniform(-2.5, 0.3))), self.number(-128, 127)
        )

    def clips(self) -> tuple[EpilogueStep, ...]:
        clip = CLIPS[self.number(0, len(CLIPS) - 1)]
        return () if clip is None else (EpilogueStep(clip),)

    def convolution(self, x: Value, filters: int) -> Value:
        """With as many pixels as there were."""
        size = KERNELS[self.number(0, len(KERNELS) - 1)]
        seed, saturated = self.number(0, 1 << 30), self.number(0, 5) == 0
        channels = x.type.shape[3]
        made = graphs.conv2d_graph(*size, channels, filters, size, seed=seed, saturated=saturated)
        self.constants |= made.constants
        rows, columns = (((n - 1) // 2, n // 2) for n in size)
        op = Conv2D((1, 1), (1, 1), (rows, columns), self.element())
        return self._add(make_node(op, [x, *made.constants], [f"value{len(self.nodes)}"], self.clips()))

    def total(self, first: Value, second: Value) -> Value:
        pair = [first, second] if self.number(0, 1) else [second, first]
        return self._add(make_node(Add(self.element()), pair, [f"value{len(self.nodes)}"], self.clips()))

    def _add(self, node: Node) -> Value:
        self.nodes.append(node)
        return node.output


def random_residual_network(seed: int) -> Graph:
    """Each sum adds the result of a convolution to an earlier value of its shape, most often the last one."""
    builder = _Builder(seed)
    height, width = builder.number(1, 9), builder.number(1, 9)
    inputs = [graphs.int8_input("x", (1, height, width, builder.number(1, 20)))]
    there = [*inputs]
    for _ in range(builder.number(2, 5)):
        like = there[-builder.number(1, min(len(there), 2))]
        source = there[-builder.number(1, len(there))]
        filters = like.type.shape[3]
        if builder.number(0, 1):
            there.append(builder.convolution(source, builder.number(1, 20)))
            source = there[-1]
        there.append(builder.total(builder.convolution(source, filters), like))
    return Graph("net", tuple(inputs), (there[-1],), tuple(builder.nodes), builder.constants)
