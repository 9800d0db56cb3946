"""Operations of a stream: actions on bytes of the arena, in order."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from microfold.ir.node import Value
from microfold.ops.rows import Rows
from microfold.plan.stream.row_node import RowNode


class WindowAddress(NamedTuple):
    """Address within a window, in bytes from its start.

    Attributes:
        newest: whether it is in the separate buffer for the newest rows of a ring or staged line buffer.
    """

    value: Value
    offset: int
    newest: bool = False


class IndirectionBuffer(Struct, frozen=True):
    """Indirection buffer: addresses of rows of a value, one by one."""

    spots: tuple[WindowAddress, ...]

    @property
    def value(self) -> Value:
        return self.spots[0].value


class ReceiveRow(Struct, frozen=True):
    """Operation: the next row of an input is copied from the caller's memory."""

    value: Value
    row: int
    spot: WindowAddress


class Fill(Struct, frozen=True):
    """Operation: rows of padding [first, last) are filled."""

    value: Value
    first: int
    last: int
    spot: WindowAddress


class MoveRows(Struct, frozen=True):
    """Operation: rows are copied to the start of their window, into a ring, to a home buffer or a stage."""

    source: WindowAddress
    target: WindowAddress
    size: int

    @property
    def is_within(self) -> bool:
        """Whether the copy is within one buffer."""
        return self.source.newest == self.target.newest


class RowsCall(Struct, frozen=True):
    """Operation: a node computes contiguous rows.

    Attributes:
        part: index of the computed part of the result.
        inputs: for each operand the address of its first row, if the rows are contiguous, else all addresses.
    """

    node: RowNode
    part: int
    inputs: tuple[WindowAddress | IndirectionBuffer, ...]
    output: WindowAddress

    @property
    def rows(self) -> Rows:
        """Rows that it computes, or adds."""
        return self.node.parts[self.part]


Operation = ReceiveRow | Fill | MoveRows | RowsCall
