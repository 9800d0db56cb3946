"""What a kernel sees of a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from microfold.analysis.interval import Range, full_range
from microfold.analysis.product_sum import Accumulator
from microfold.analysis.ranges import Ranges
from microfold.ir.node import Node, Value
from microfold.ir.types import Array
from microfold.support.frozen import frozen
from microfold.support.memo import Remembered
from microfold.target import Target


@frozen(eq=False)
class LayerContext:
    """A node with what a kernel may know about it at compile time.

    Neither other layers nor what the user asks for are among it.

    Attributes:
        constants: arrays of the values that nothing computes; those of other layers may be among them.
        ranges: what is proved about the model's integers; None where nothing has been looked into.
        compiled_for_size: the C compiler is asked for short code (-Os), and keeps less in registers.
        row_table: the call is given a table of addresses in the place of the first input, see
            `band.lower_by_rows`.
        remembered: what searches have made of this layer.
        band_of: the node of which this one computes some rows, see `band.layer_band`; None: it is whole.
    """

    node: Node
    constants: Mapping[Value, Array]
    target: Target
    ranges: Ranges | None = None
    compiled_for_size: bool = False
    row_table: bool = False
    band_of: Node | None = None
    remembered: Remembered = field(default_factory=Remembered, init=False, repr=False)

    @property
    def whole(self) -> Node:
        """The node of the model that this computes, or a part of."""
        return self.band_of if self.band_of is not None else self.node

    def array(self, index: int) -> Array | None:
        """The constant behind `Node.arguments[index]`; None if absent or computed."""
        arguments = self.node.arguments
        value = arguments[index] if index < len(arguments) else None
        return self.constants.get(value) if value is not None else None

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
