"""What selection knows about a model as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from functools import cached_property

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.types import DType
from microfold.kernels.kernel import Kernel
from microfold.kernels.packing import float16_weights, int4
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.kernels.selection.pins import NO_PINS, Pins
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.hybrid_conv2d import HybridConv2D
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.fully_connected.hybrid_fully_connected import HybridFullyConnected
from microfold.support.memo import Remembered

# Of all int8 constants, the part by which int16 weights may add to them: those of the first layers of an
# image network, which have few weights for most of the outputs.
WIDENED_SHARE = 1 / 8
# Of all weights that fit 4 bits, so small a part may keep bytes where speed counts as well as flash. They
# cost half of themselves: a thirty-second of what packing halves.
EXPANDED_SHARE = 1 / 16

# Operators with kernels for weights of four bits, and the type of their activations then.
_PACKABLE: Mapping[type[Op], DType] = {
    Conv2D: DType.INT8,
    FullyConnected: DType.INT8,
    HybridConv2D: DType.INT16,
    HybridFullyConnected: DType.INT16,
}


class Model:
    """Facts about a graph, each found when it is first asked for.

    Args:
        costs: what its kernels take, where that was measured; None: estimates decide.
        pins: the only kernels that may compute some of its nodes.
    """

    def __init__(self, graph: Graph, costs: MeasuredCosts | None = None, pins: Pins = NO_PINS):
        self.graph = graph
        self.costs = costs
        self.pins = pins
        self._products: dict[str, Counter[Hashable]] = {}
        self._half_savings: dict[type[Op], tuple[int, bool]] = {}
        self.remembered = Remembered()

    @cached_property
    def operators(self) -> Counter[type[Op]]:
        """How many nodes each has."""
        return Counter(type(node.op) for node in self.graph.nodes)

    @cached_property
    def products(self) -> int:
        """Multiply-accumulates of all nodes."""
        return sum(node.macs() for node in self.graph.nodes)

    def products_by_kind(self, kernel: Kernel) -> Counter[Hashable]:
        """Of the nodes that a kernel's functions are for, by `Kernel.code_kind`."""
        if kernel.name not in self._products:
            found: Counter[Hashable] = Counter()
            for node in self.graph.nodes:
                kind = kernel.code_kind(node)
                if kind is not None:
                    found[kind] += node.macs()
            self._products[kernel.name] = found
        return self._products[kernel.name]

    @cached_property
    def int8_constants(self) -> int:
        """Bytes."""
        return sum(v.type.nbytes for v in self.graph.constants if v.type.dtype is DType.INT8)

    @cached_property
    def four_bit_weights(self) -> Mapping[Value, list[Node]]:
        """Weights that fit 4 bits, with the layers that have them and whose kernels could pack them."""
        found: dict[Value, list[Node]] = {}
        for node in self.graph.nodes:
            if type(node.op) not in _PACKABLE:
                continue
            x, value = node.operands[:2]
            weights, quant = self.graph.array(value), value.type.quant
            if weights is None or (x.type.dtype, value.type.dtype) != (_PACKABLE[type(node.op)], DType.INT8):
                continue
            zero_point = quant.zero_point if quant is not None and quant.axis is None else 0
            if int4.fit(weights.astype(np.int16) - zero_point):
                found.setdefault(value, []).append(node)
        return found

    @cached_property
    def four_bit_sizes(self) -> Counter[type[Op]]:
        """How many of these weights each operator has."""
        sizes: Counter[type[Op]] = Counter()
        for value, nodes in self.four_bit_weights.items():
            sizes[type(nodes[0].op)] += value.type.size
        return sizes

    @cached_property
    def expanded_weights(self) -> Collection[Value]:
        """Those of these weights that stay bytes.

        For them, packing costs most per byte that it saves: each weight is used for many outputs.
        """
        fitting = self.four_bit_weights

        def uses(value: Value) -> float:
            return sum(node.output.type.size for node in fitting[value]) / value.type.size

        left = int(self.four_bit_sizes.total() * EXPANDED_SHARE)
        found: set[Value] = set()
        for value in sorted(fitting, key=uses, reverse=True):
            left -= value.type.size
            if left < 0:
                break
            found.add(value)
        return found

    def half_savings(self, operator: type[Op]) -> tuple[int, bool]:
        """Bytes that float16 weights save in an operator's layers, and whether they do in each of them."""
        if operator not in self._half_savings:
            nodes = [node for node in self.graph.nodes if type(node.op) is operator]
            saved = [self._saved_by_half(node) for node in nodes]
            self._half_savings[operator] = sum(saved), all(saved)
        return self._half_savings[operator]

    def _saved_by_half(self, node: Node) -> int:
        weights = self.graph.array(node.inputs[1]) if len(node.inputs) > 1 else None
        if weights is None or weights.dtype != DType.FLOAT32.numpy or not float16_weights.fits(weights):
            return 0
        return weights.nbytes // 2

    @cached_property
    def largest_step(self) -> int:
        """Bytes of the most that one node reads and writes: the arena is about as large."""
        constants, nodes = self.graph.constants, self.graph.nodes
        values = [{v for v in (*n.operands, *n.outputs) if v not in constants} for n in nodes]
        return max(sum(v.type.nbytes for v in step) for step in values)

    @cached_property
    def int16_afforded(self) -> Mapping[Node, bool]:
        """For each convolution with int8 weights, whether int16 ones are affordable.

        They are where they save most per byte: on layers with many outputs per weight.
        """
        second = {n: n.inputs[1] for n in self.graph.nodes if isinstance(n.op, Conv2D)}
        filters = {n: w.type for n, w in second.items() if w is not None and w.type.dtype is DType.INT8}
        left = int(self.int8_constants * WIDENED_SHARE)

        def saving(node: Node) -> float:
            weights = filters[node]
            depth = weights.size // weights.shape[0]
            # Per byte: half an instruction of the inner loop, and 12 of every two channels.
            return node.output.type.size / weights.shape[0] * (0.5 + 12 / depth)

        found: dict[Node, bool] = {}
        for node in sorted(filters, key=saving, reverse=True):
            left -= filters[node].nbytes
            found[node] = left >= 0
        return found

    @cached_property
    def int16_afforded_by_all(self) -> bool:
        """Whether all of these convolutions afford it."""
        return all(self.int16_afforded.values())
