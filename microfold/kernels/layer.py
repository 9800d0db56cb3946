"""The layer as a kernel sees it: a node with its constants, its proved ranges and the target."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct

from microfold.analysis.interval import Range, full_range
from microfold.analysis.product_sum import Accumulator
from microfold.analysis.ranges import Ranges
from microfold.ir.node import Node, Value
from microfold.ir.types import Array
from microfold.support.memo import Remembered
from microfold.target import Target


class LayerContext(Struct, frozen=True, eq=False, dict=True):
    """A node with all that a kernel may know about it at compile time.

    It does not include other layers or the user's options.

    Attributes:
        constants: arrays of the values that no node computes. Constants of other layers may be among them.
        ranges: proved ranges of the model's integers; None if they were not analysed.
        compiled_for_size: whether the C code is compiled for size (-Os) and keeps fewer values in registers.
        indirection_buffer: whether the first input of the call is an indirection buffer, see
            `band.lower_by_rows`.
        parent_node: complete node if this one computes only some of its rows, see `band.layer_band`; else
            None.
    """

    node: Node
    constants: Mapping[Value, Array]
    target: Target
    ranges: Ranges | None = None
    compiled_for_size: bool = False
    indirection_buffer: bool = False
    parent_node: Node | None = None

    @cached_property
    def remembered(self) -> Remembered:
        """Cache of results that depend on this layer only."""
        return Remembered()

    @property
    def whole(self) -> Node:
        """The node of the model that this layer computes, wholly or in part."""
        return self.parent_node if self.parent_node is not None else self.node

    def array(self, index: int) -> Array | None:
        """Return the constant array of `Node.arguments[index]`; None if it is absent or computed."""
        arguments = self.node.arguments
        value = arguments[index] if index < len(arguments) else None
        return self.constants.get(value) if value is not None else None

    def present(self, index: int) -> bool:
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def range(self, index: int) -> Range:
        """Return the range of an integer input, per channel: the proved range, or the range of its type."""
        value = self.node.inputs[index]
        assert value is not None
        known = self.ranges.values.get(value) if self.ranges is not None else None
        return known if known is not None else full_range(value.type)

    def sums(self) -> Accumulator | None:
        """Return the proved ranges of a product sum's accumulators; None if they were not analysed."""
        return self.ranges.accumulators.get(self.node) if self.ranges is not None else None
