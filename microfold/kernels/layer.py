"""What a kernel sees of a layer."""

from __future__ import annotations

from dataclasses import dataclass

from microfold.analysis.interval import Range, full_range
from microfold.analysis.product_sum import Accumulator
from microfold.analysis.ranges import Ranges
from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.types import Array
from microfold.options import Options
from microfold.target import Target


@dataclass(frozen=True)
class LayerContext:
    """A node with what a kernel may know about it at compile time.

    Attributes:
        ranges: what is proved about the graph's integers; None where nothing has been looked into.
    """

    node: Node
    graph: Graph
    target: Target
    options: Options
    ranges: Ranges | None = None

    def array(self, index: int) -> Array | None:
        """The constant behind input `index`; None if absent or computed."""
        if index >= len(self.node.inputs):
            return None
        return self.graph.array(self.node.inputs[index])

    def present(self, index: int) -> bool:
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def range(self, index: int) -> Range:
        """What an integer input can hold, per channel: what is proved, or all that its type can."""
        value = self.node.inputs[index]
        assert value is not None
        known = self.ranges.values.get(value) if self.ranges is not None else None
        return known if known is not None else full_range(value.type)

    def sums(self) -> Accumulator | None:
        """What the sums of a product sum can be, where it is proved."""
        return self.ranges.accumulators.get(self.node) if self.ranges is not None else None
