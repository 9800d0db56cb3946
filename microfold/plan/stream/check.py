"""Independent checker of a streamed model: replays its operations over the arena, byte by byte.

It knows the operators' rows (`microfold.ops.rows`). It knows nothing of windows, of the readers of rows, or
of how addresses were chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from msgspec import Struct

from microfold.errors import GraphError
from microfold.ir.node import Value
from microfold.ir.types import TensorType
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.rows import ROWS, Band, Rows, band, row_pitch
from microfold.plan.stream.operations import (
    Fill,
    IndirectionBuffer,
    MoveRows,
    Operation,
    ReceiveRow,
    RowsCall,
    WindowAddress,
)

# Owner of bytes with undefined content.
_RUBBISH = 0


class Computing(Struct, frozen=True):
    """Kernel and layer that compute a row.

    Attributes:
        layer: layer of the band, as the kernel sees it.
        scratch: address and size of the scratch memory, in bytes.
    """

    layer: LayerContext
    kernel: Kernel
    scratch: tuple[int, int] = (0, 0)


def check_stream(
    operations: Iterable[Operation],
    bases: Mapping[Value, int],
    size: int,
    computing: Callable[[RowsCall], Computing],
    fronts: Mapping[Value, int],
    sources: Mapping[Value, int] | None = None,
    kept: Iterable[tuple[str, int, int]] = (),
    newest: Mapping[Value, int] | None = None,
) -> None:
    """Verify a stream.

    Every row of a value is written once, in order, and padding only outside of its rows. A call finds exactly
    the rows that its operator reads, and its result overlaps them only as its kernel allows. Its scratch
    memory does not overlap them, and is undefined afterwards. All addresses are inside of the arena, and all
    resident results are complete at the end.

    Args:
        bases: addresses of the windows.
        size: size of the arena, in bytes.
        fronts: addresses of the values that must be complete at the end.
        sources: addresses of the values that are complete at the beginning.
        kept: memory that must not be written: names, addresses and bytes.
        newest: addresses of the buffers for the newest rows.

    Raises:
        GraphError: describes the first fault.
    """
    replay = _Replay(bases, newest or {}, size)
    for value, address in (sources or {}).items():
        replay.begin_whole(value, address)
    kept = [*kept]
    for number, (name, address, length) in enumerate(kept):
        replay.keep(-1 - number, name, address, length)
    for operation in operations:
        match operation:
            case ReceiveRow(value, row, spot):
                replay.arrive(value, row, replay.at(spot))
            case Fill(value, first, last, spot):
                replay.fill(value, first, last, replay.at(spot))
            case MoveRows(source, target, count):
                replay.move(replay.at(source), replay.at(target), count)
            case RowsCall():
                replay.compute(operation, computing(operation))
    for value, address in fronts.items():
        replay.expect_whole(value, address)
    for number, (name, address, length) in enumerate(kept):
        replay.expect_kept(-1 - number, name, address, length)


class _Replay:
    """Content of the arena: for each byte its value, and its position within the value."""

    def __init__(self, bases: Mapping[Value, int], newest: Mapping[Value, int], size: int):
        self.bases = bases
        self.newest = newest
        self.size = size
        self.owner = np.zeros(size, np.int32)
        self.place = np.zeros(size, np.int32)
        self.numbers: dict[Value, int] = {}
        self.there: dict[Value, int] = {}
        self.added: dict[Value, int] = {}

    def at(self, spot: WindowAddress) -> int:
        """Return the address of a spot."""
        return (self.newest if spot.newest else self.bases)[spot.value] + spot.offset

    def arrive(self, value: Value, row: int, address: int) -> None:
        self._in_order(value, row, row + 1)
        self._put(value, row, row + 1, address)

    def fill(self, value: Value, first: int, last: int, address: int) -> None:
        if last > 0 and first < value.type.shape[ROWS]:
            raise _fault(f"rows {first} to {last} of %{value.name} are no padding")
        self._put(value, first, last, address)

    def move(self, source: int, target: int, count: int) -> None:
        self._inside(source, count, "the source of a move")
        self._inside(target, count, "the target of a move")
        for tags in (self.owner, self.place):
            tags[target : target + count] = tags[source : source + count].copy()

    def compute(self, call: RowsCall, by: Computing) -> None:
        node, out = call.node.node, call.node.output
        begin = self.at(call.output)
        first, last = call.rows
        end = begin + (out.type.nbytes if call.node.accumulates else (last - first) * row_pitch(out.type))
        scratch, size = by.scratch
        if size:
            self._inside(scratch, size, "scratch")
            if scratch < end and begin < scratch + size:
                raise _fault(f"scratch memory overlaps row {first} of %{out.name}")
        reads = _reads(call, by.layer)
        if len(call.inputs) != len(reads):
            raise _fault(f"row {first} of %{out.name} needs {len(reads)} inputs, not {len(call.inputs)}")
        for (index, rows), spot in zip(reads.items(), call.inputs, strict=True):
            count = rows[1] - rows[0]
            if isinstance(spot, IndirectionBuffer) and len(spot.spots) != count:
                raise _fault(f"row {first} of %{out.name} needs {count} rows, not {len(spot.spots)}")
            value = node.inputs[index]
            assert value is not None
            single = isinstance(spot, IndirectionBuffer)
            pieces = (
                [(rows, spot)]
                if not single
                else [((row, row + 1), each) for row, each in zip(range(*rows), spot.spots, strict=True)]
            )
            for part, each in pieces:
                address, length = self.at(each), (part[1] - part[0]) * row_pitch(value.type)
                self._expect(value, part, address)
                if size and scratch < address + length and address < scratch + size:
                    raise _fault(f"scratch memory overlaps rows of %{value.name}, which %{out.name} reads")
                if begin < address + length and address < end:
                    if single:
                        raise _fault(f"row {first} of %{out.name} overlaps row {part[0]} of %{value.name}")
                    self._allowed(call, by, index, address - begin)
        if size:
            self.owner[scratch : scratch + size] = _RUBBISH
        if call.node.accumulates:
            self._add(out, first, begin)
        else:
            self._in_order(out, first, last)
            self._put(out, first, last, begin)

    def begin_whole(self, value: Value, address: int) -> None:
        """Begin with all rows of a value."""
        height = value.type.shape[ROWS]
        self._put(value, 0, height, address)
        self.there[value] = height

    def keep(self, tag: int, name: str, address: int, length: int) -> None:
        """Mark bytes that must not be written."""
        self._inside(address, length, name)
        if self.owner[address : address + length].any():
            raise _fault(f"{name} overlaps other content")
        self.owner[address : address + length] = tag

    def expect_kept(self, tag: int, name: str, address: int, length: int) -> None:
        if (self.owner[address : address + length] != tag).any():
            raise _fault(f"{name} is overwritten")

    def expect_whole(self, value: Value, address: int) -> None:
        if value in self.added:
            self._expect(value, (0, 1), address)
            return
        height = value.type.shape[ROWS]
        if self.there.get(value, 0) != height:
            raise _fault(f"%{value.name} has {height} rows; {self.there.get(value, 0)} exist at the end")
        self._expect(value, (0, height), address)

    def _add(self, out: Value, row: int, address: int) -> None:
        """Add a row to sums, which must contain all rows before it."""
        if row != self.added.get(out, 0):
            raise _fault(f"row {row} is added to %{out.name} after {self.added.get(out, 0)} rows")
        if row:
            self._expect(out, (0, 1), address)
        self._put(out, 0, 1, address)
        self.added[out] = row + 1

    def _allowed(self, call: RowsCall, by: Computing, index: int, distance: int) -> None:
        """Verify that the kernel allows the overlap of a result with its operand."""
        node, kernel = call.node.node, by.kernel
        least = kernel.overlap(by.layer, index)
        value = node.inputs[index]
        alone = value is not None and node.operands.count(value) == 1
        if alone and least is not None and distance >= least:
            return
        if alone and least is None and distance == 0 and kernel.in_place(by.layer, index):
            return
        raise _fault(
            f"row {call.rows[0]} of %{node.output.name} begins {-distance} bytes after the beginning of its "
            f"operand; {kernel.name} allows {least}"
        )

    def _in_order(self, value: Value, first: int, last: int) -> None:
        if first != self.there.get(value, 0):
            raise _fault(f"row {first} of %{value.name} is written after row {self.there.get(value, 0) - 1}")
        self.there[value] = last

    def _put(self, value: Value, first: int, last: int, address: int) -> None:
        length = row_pitch(value.type)
        self._inside(address, (last - first) * length, f"rows {first} to {last} of %{value.name}")
        end = address + (last - first) * length
        self.owner[address:end] = self._number(value)
        self.place[address:end] = np.arange(first * length, last * length)

    def _expect(self, value: Value, rows: Rows, address: int) -> None:
        length = row_pitch(value.type)
        first, end = rows[0] * length, rows[1] * length
        self._inside(address, end - first, f"rows {rows[0]} to {rows[1]} of %{value.name}")
        owner = self.owner[address : address + end - first]
        place = self.place[address : address + end - first]
        if not ((owner == self._number(value)).all() and (place == np.arange(first, end)).all()):
            raise _fault(f"rows {rows[0]} to {rows[1]} of %{value.name} are not at {address}")

    def _inside(self, address: int, size: int, what: str) -> None:
        if not 0 <= address <= address + size <= self.size:
            raise _fault(f"{what}, {size} bytes at {address}, must be inside of the arena of {self.size}")

    def _number(self, value: Value) -> int:
        return self.numbers.setdefault(value, len(self.numbers) + 1)


def _reads(call: RowsCall, layer: LayerContext) -> dict[int, Rows]:
    """Return the rows of each operand that an operator reads for these result rows, including padding."""
    node = call.node.node
    if call.node.accumulates:
        return {0: call.rows}
    types: list[TensorType | None] = [v.type if v is not None else None for v in node.inputs]
    found = band(node.op, types, call.rows)
    assert isinstance(found, Band)
    reads: dict[int, Rows] = {}
    for index, rows in enumerate(found.operands):
        given = layer.node.inputs[index]
        if rows is not None and given is not None and given not in layer.constants:
            reads[index] = rows.start - rows.above, rows.stop + rows.below
    return reads


def _fault(text: str) -> GraphError:
    return GraphError(f"the stream is wrong: {text}")
