"""What a stream consists of: operations on bytes of the arena, in order."""

from __future__ import annotations

from typing import NamedTuple

from microfold.ir.node import Value
from microfold.ops.rows import Rows
from microfold.plan.stream.row_node import RowNode
from microfold.support.frozen import frozen


class Spot(NamedTuple):
    """A place in a window: bytes from its start.

    Attributes:
        newest: of rings and carried rows: among the newest rows, which lie apart.
    """

    value: Value
    offset: int
    newest: bool = False


@frozen
class Table:
    """Where rows of a value lie, one by one."""

    spots: tuple[Spot, ...]

    @property
    def value(self) -> Value:
        return self.spots[0].value


@frozen
class Arrive:
    """The next row of an input is copied from the caller's."""

    value: Value
    row: int
    spot: Spot


@frozen
class Fill:
    """Rows of padding, from `first` to before `last`, get the value's fill."""

    value: Value
    first: int
    last: int
    spot: Spot


@frozen
class Slide:
    """Rows that are still needed move: to the start of their window, into their ring, home, or to a stage."""

    source: Spot
    target: Spot
    size: int

    @property
    def is_within(self) -> bool:
        """Whether they move within one place."""
        return self.source.newest == self.target.newest


@frozen
class RowsCall:
    """A node computes rows that lie behind each other.

    Attributes:
        part: of its result, an index.
        inputs: where the first of the rows that it reads lies, operand by operand; the others lie behind it,
            or all have places of their own.
    """

    node: RowNode
    part: int
    inputs: tuple[Spot | Table, ...]
    output: Spot

    @property
    def rows(self) -> Rows:
        """Those that it computes, or adds."""
        return self.node.parts[self.part]


Operation = Arrive | Fill | Slide | RowsCall
