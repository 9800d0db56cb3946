"""Regions of a graph that compute each element of a value from one element of another value."""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from microfold.ir.match import Dataflow
from microfold.ir.node import Node, Value, describe
from microfold.ir.op import Pattern
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.movement.copy import Copy

NARROW = (DType.INT8, DType.UINT8, DType.INT16)
# Maximum number of nodes. Regions are searched from every end; the bound keeps the work linear in the graph.
LARGEST = 64


class ElementwiseRegion(Struct, frozen=True, eq=False):
    """Elementwise nodes that compute one value from one narrow integer value.

    Attributes:
        source: value that the region reads: 8 or 16 bits, one scale, not constant.
        nodes: nodes in topological order. Only the last one's result is read outside.
    """

    source: Value
    nodes: tuple[Node, ...]

    def evaluate(self, flow: Dataflow) -> Array:
        """Return the last node's result for every number of the source's type, lowest first."""
        numbers = every_number(self.source.type)
        tensors = {self.source: Tensor(self.source.type.with_shape(numbers.shape), numbers)}
        for node in self.nodes:
            for value in node.operands:
                array = flow.array(value)
                if array is not None:
                    tensors[value] = Tensor(value.type.with_shape((1,)), array.reshape(1))
            tensors.update(zip(node.outputs, node.evaluate(tensors), strict=True))
        return tensors[self.nodes[-1].outputs[0]].data


def every_number(type: TensorType) -> Array:
    """Return every number of an integer type, lowest first."""
    low, high = type.dtype.range
    return np.arange(low, high + 1).astype(type.dtype.numpy)


def is_narrow(type: TensorType) -> bool:
    """Return whether a type has 8 or 16 bits and at most one scale."""
    return type.dtype in NARROW and (type.quant is None or type.quant.axis is None)


def find_regions(root: Node, flow: Dataflow) -> list[ElementwiseRegion] | str:
    """Return the regions that end in a node, the smallest first, or the reason why there is none.

    A node can be in a region if nothing outside reads its result. This does not hold for a dequantize at the
    region's start, because it is cheap and its operand is narrow.
    """
    search = _Search(flow)
    reason = search.why_not(root)
    if reason is not None:
        return reason
    search.add(root)
    found = search.region()
    while search.grow():
        found += search.region()
    return found or search.refusal()


class _Search:
    """Search of a region, which grows from its end.

    Attributes:
        nodes: nodes of the region, each after its readers.
        edge: values that they read and that are neither constant nor computed by them, with the number of
            reads.
        pending: values on the edge that have not been examined.
        stuck: values on the edge that no region can compute. With two of them, there is no larger region.
        reason: first reason against a larger region.
    """

    def __init__(self, flow: Dataflow):
        self.flow = flow
        self.nodes: list[Node] = []
        self.edge: Counter[Value] = Counter()
        self.pending: list[Value] = []
        self.stuck: set[Value] = set()
        self.reason = ""

    def add(self, node: Node) -> None:
        read = [value for value in node.operands if self.flow.array(value) is None]
        self.nodes.append(node)
        self.edge.update(read)
        self.pending += dict.fromkeys(read)

    def grow(self) -> bool:
        """Add one more node to the region, and return whether there is one."""
        while self.pending and len(self.nodes) < LARGEST and len(self.stuck) < 2:
            value = self.pending.pop()
            node = self.flow.producer(value)
            if node is not None and self.flow.readers(value) > self.edge[value]:
                reason = f"{describe(node)} has other readers"
            else:
                reason = self.why_not(node) if node is not None else f"no node computes %{value.name}"
                if node is not None and reason is None:
                    del self.edge[value]
                    self.add(node)
                    return True
                self.stuck.add(value)
            self.reason = self.reason or reason or ""
        return False

    def region(self) -> list[ElementwiseRegion]:
        """Return the current region if it reads one narrow value, else nothing."""
        source = self._source()
        if source is None or self.flow.array(source) is not None or not is_narrow(source.type):
            return []
        begin = [node for node in map(self._dequantize, self.edge) if node is not None]
        return [ElementwiseRegion(source, (*begin, *reversed(self.nodes)))]

    def refusal(self) -> str:
        """Return the reason why there is no region."""
        source = self._source()
        if source is not None and self.flow.array(source) is not None:
            return f"%{source.name} is constant, and so is the result"
        if source is not None and self.flow.producer(source) is None:
            return f"%{source.name} must have 8 or 16 bits and one scale; it is {source.type}"
        return self.reason

    def _source(self) -> Value | None:
        """Return the value from which everything is computed; None if there are several."""
        found = {
            node.operands[0] if node else v
            for v, node in zip(self.edge, map(self._dequantize, self.edge), strict=True)
        }
        return found.pop() if len(found) == 1 else None

    def _dequantize(self, value: Value) -> Node | None:
        node = self.flow.producer(value)
        return node if node is not None and isinstance(node.op, Dequantize) and not node.epilogue else None

    def why_not(self, node: Node) -> str | None:
        """Return the reason why a node cannot be in any region; None if it can."""
        where = describe(node)
        if node.op.pattern not in (Pattern.ELEMENTWISE, Pattern.BROADCAST) or node.op.has_effect:
            return f"{where} is not elementwise"
        if isinstance(node.op, Copy):
            return f"{where} copies a value to separate storage"
        if len(node.outputs) != 1:
            return f"{where} has several results"
        shape = node.outputs[0].type.shape
        arrays = [(value, self.flow.array(value)) for value in node.operands]
        if all(array is not None for _, array in arrays):
            return f"{where} is constant"
        if any(array.size != 1 for _, array in arrays if array is not None):
            return f"{where} reads more than one constant for the elements"
        if any(array is None and value.type.shape != shape for value, array in arrays):
            return f"{where} broadcasts"
        return None
