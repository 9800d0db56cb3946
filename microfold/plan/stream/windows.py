"""Line-buffer schedule of a region: its row operations in order, and the buffer of every value.

A region is a run of consecutive nodes that are computed row by row. Each value that is produced or read
inside it lives in a *window*, a buffer that holds the rows some node still needs, and no others. Before a new
row is written, rows that are no longer needed are dropped, and the remaining rows move to the start of the
window::

    3x3 convolution, stride 1, reads rows r-1 .. r+1 of its operand

    before row 4 is written    | row 1 | row 2 | row 3 |
    MoveRows: older rows move     | row 2 | row 3 |   .   |
    row 4 is written           | row 2 | row 3 | row 4 |  -> the convolution computes output row 3

The rows of a window are therefore contiguous, rows of padding included. That makes every band of a layer the
same call of the same kernel, only with other addresses.

A value that is also produced or read outside of the region is *resident*: its window has room for the whole
tensor, and its rows never move. `microfold.plan.stream.row_buffers` has two other kinds of buffers.

The schedule does not fix addresses. It lists for every *moment* the operations and the bytes in use, from
which `timeline` derives lifetimes, and the arena planner offsets. A moment is the execution of one event (an
input row arrives, padding is written, a node computes one part of its result), or of copies before or after
one.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from microfold.ir.node import Value
from microfold.ops.rows import ROWS
from microfold.plan.stream.blocks import StreamBlock, block
from microfold.plan.stream.events import Compute, Event, Padding, RowArrival, events_of
from microfold.plan.stream.operations import (
    Fill,
    IndirectionBuffer,
    MoveRows,
    Operation,
    ReceiveRow,
    RowsCall,
    WindowAddress,
)
from microfold.plan.stream.region import StreamRegion
from microfold.plan.stream.ring_buffers import RingBuffer, in_slots
from microfold.plan.stream.row_buffers import RowBuffer
from microfold.plan.stream.row_node import NEVER, RowNode, pitch
from microfold.plan.stream.staged_line_buffers import StagedLineBuffer
from microfold.plan.stream.window import RowWindow, UsedBytes


class OperandRead(Struct, frozen=True):
    """Read of an operand by one call, to decide whether its result may overlap the operand's window.

    Attributes:
        offset: offset of the first row that is read from the start of the operand's window, in bytes.
        free: whether the operand's window is empty after the call, and the result's window before it. Only
            then may the two overlap.
    """

    offset: int
    free: bool


class RegionSchedule(Struct, frozen=True, eq=False):
    """Operations and buffers of a region, without addresses.

    Attributes:
        region: region that is scheduled.
        operations: operations of each moment, in order.
        blocks: window of each value; of rings and staged line buffers, the part that keeps older rows.
        events: moments at which each node computes.
        operand_reads: for each call of a node, how it reads its operands, by operand index.
        occupied: bytes of each window that are in use, moment by moment.
        margins: rows of padding above row 0 of each resident value.
        newest: buffer for the newest rows of each ring and each staged line buffer.
    """

    region: StreamRegion
    operations: Sequence[Sequence[Operation]]
    blocks: Mapping[Value, StreamBlock]
    events: Mapping[RowNode, Sequence[int]]
    operand_reads: Mapping[RowNode, Sequence[Mapping[int, OperandRead]]]
    occupied: Mapping[Value, UsedBytes]
    margins: Mapping[Value, int]
    newest: Mapping[Value, StreamBlock]

    @property
    def slides(self) -> Iterator[MoveRows]:
        """All moves of rows."""
        return (op for op in self.all_operations if isinstance(op, MoveRows))

    @property
    def all_operations(self) -> Iterator[Operation]:
        """Operations of all moments, in order."""
        return (operation for moment in self.operations for operation in moment)

    def shift(self, value: Value) -> int:
        """Return the offset of row 0 of a resident value in its window, in bytes."""
        return self.margins[value] * pitch(value)


def schedule_region(
    region: StreamRegion, margins: Mapping[Value, tuple[int, int]] | None = None
) -> RegionSchedule:
    """Simulate the events of a region, and record the operations and the bytes in use.

    Args:
        margins: rows of padding above and below each resident value, if other regions need more of them than
            this one.
    """
    return _Recorder(region, margins or {}, events_of(region)).record()


@dataclass
class _Recorder:
    """Simulation of a region, event by event.

    Attributes:
        given: rows of padding above and below resident values, see `schedule_region`.
        touches: events that read or write rings and staged line buffers, see `_accesses`.
        keepers: rings and staged line buffers, by value.
        windows: windows of all other values.
        done: number of parts that each node has computed.
        held: readers of each value, each with the first row that it needs from its n-th part on.
        needed: first row of each value that some node still needs.
        used: values whose windows are read or written in the next moment.
        changed: values whose windows were used in the last moment, and may hold fewer rows now.
    """

    region: StreamRegion
    given: Mapping[Value, tuple[int, int]]
    all_events: Sequence[Event]
    touches: Mapping[Value, Sequence[tuple[int, bool]]] = field(
        default_factory=dict[Value, Sequence[tuple[int, bool]]]
    )
    keepers: dict[Value, RowBuffer] = field(default_factory=dict[Value, RowBuffer])
    operations: list[list[Operation]] = field(default_factory=list[list[Operation]])
    windows: dict[Value, RowWindow] = field(default_factory=dict[Value, RowWindow])
    done: dict[RowNode, int] = field(default_factory=dict[RowNode, int])
    events: dict[RowNode, list[int]] = field(default_factory=dict[RowNode, list[int]])
    operand_reads: dict[RowNode, list[Mapping[int, OperandRead]]] = field(
        default_factory=dict[RowNode, list[Mapping[int, OperandRead]]]
    )
    held: dict[Value, Sequence[tuple[RowNode, Sequence[int]]]] = field(
        default_factory=dict[Value, Sequence[tuple[RowNode, Sequence[int]]]]
    )
    needed: dict[Value, int] = field(default_factory=dict[Value, int])
    used: dict[Value, None] = field(default_factory=dict[Value, None])
    changed: dict[Value, None] = field(default_factory=dict[Value, None])

    def record(self) -> RegionSchedule:
        region = self.region
        margins = {
            value: self.given.get(value, (region.above(value), region.below(value))) for value in region.held
        }
        for value in region.rings:
            self.keepers[value] = RingBuffer(value, pitch(value), -region.above(value))
        for value in region.carried:
            self.keepers[value] = StagedLineBuffer(value, pitch(value), -region.above(value))
        for value in (*region.inputs, *region.sources, *region.producers):
            if value in self.keepers:
                continue
            above, below = margins.get(value, (region.above(value), 0))
            low = -region.above(value)
            window = RowWindow(pitch(value), -above, low, low, value in margins)
            if value in margins:
                window.capacity = above + value.type.shape[ROWS] + below
            if value in region.sources:
                window.top = value.type.shape[ROWS]
                self.changed[value] = None
            self.windows[value] = window
        for value in (*self.keepers, *self.windows):
            readers = region.readers.get(value, ())
            self.held[value] = [(node, node.readings[index].held) for node, index in readers]
            self._find_needed(value)
        self.touches = _accesses(region, self.all_events)
        for number, event in enumerate(self.all_events):
            self._event(number, event)
        end = len(self.operations)
        for value in region.fronts:
            # Results are in use from their first row to the end of the region, for the nodes after it.
            self.windows[value].keep(self.windows[value].first, end)
        for value in region.sources:
            # Sources are in use from the start of the region until their last row is read.
            window = self.windows[value]
            window.keep(0, end if value in region.outlives else window.behind(end))
        used = {value: window for value, window in self.windows.items() if window.changes}
        blocks = {
            value: block(value.name, window.capacity * window.pitch, window.times(end))
            for value, window in used.items()
        }
        newest: dict[Value, StreamBlock] = {}
        for value, keeper in self.keepers.items():
            times = keeper.newest_times or keeper.times
            blocks[value] = block(value.name, keeper.size, keeper.times or times)
            newest[value] = block(f"{value.name}, newest", max(keeper.width, 1) * keeper.pitch, times)
        # Only now the number of slots of each ring is known: reduce the slot numbers modulo that number.
        rings = {value: self.keepers[value].size for value in region.rings}
        return RegionSchedule(
            region,
            [[in_slots(operation, rings) for operation in moment] for moment in self.operations]
            if rings
            else self.operations,
            blocks,
            self.events,
            self.operand_reads,
            {value: window.held(end) for value, window in used.items()},
            {value: above for value, (above, _) in margins.items()},
            newest,
        )

    def _event(self, number: int, event: Event) -> None:
        made: list[Operation] = []
        # Taken before the event: rows that it reads for the last time are in use until it has ended.
        begun = self._begun()
        match event:
            case RowArrival(value, row):
                moves, spot = self._make_room(value, row, row + 1, number)
                made += [*moves, ReceiveRow(value, row, spot)]
            case Padding(value, first, last):
                keeper = self.keepers.get(value)
                for part in keeper.padding(first, last) if keeper is not None else [(first, last)]:
                    moves, spot = self._make_room(value, *part, number)
                    made += [*moves, Fill(value, *part, spot)]
            case Compute(node, part):
                made += self._compute(node, part, number)
                value = node.output
        if value in self.windows:
            self.used[value] = None
        self._moment(made, begun)
        self._keep_newest(number)

    def _begun(self) -> dict[Value, int]:
        """Return the first row of each source that is still needed."""
        return {value: min(self.needed[value], self.windows[value].top) for value in self.region.sources}

    def _moment(self, made: list[Operation], begun: Mapping[Value, int]) -> None:
        """Append a moment, and record the bytes that are in use during it.

        Args:
            made: operations of the moment.
            begun: first row of each source that is still needed when the moment begins.
        """
        time = len(self.operations)
        self.operations.append(made)
        for keeper in self.keepers.values():
            keeper.mark(time)
        # The bytes in use of all other windows are the same as in the moment before.
        for value in self.changed | self.used:
            window = self.windows[value]
            holds = value in self.used or self.needed[value] < window.top
            window.hold(time, self._occupied(value, begun.get(value, window.start)) if holds else None)
        self.changed, self.used = self.used, {}

    def _keep_newest(self, number: int) -> None:
        """Move newest rows to the buffer of older rows once a call has read them, or if none will soon.

        This frees their own buffer for other values.
        """
        for value, keeper in self.keepers.items():
            needed = self.needed[value]
            keeper.forget(needed)
            if keeper.is_apart and (keeper.read or self._is_written_next(value, number)):
                moves = keeper.keep(needed)
                if keeper.carries:
                    self._moment([*moves], self._begun())
                else:
                    self.operations[-1] += moves
                    keeper.mark(len(self.operations) - 1)

    def _is_written_next(self, value: Value, number: int) -> bool:
        """Return whether the next access to a value after an event is a write."""
        touched = self.touches[value]
        return touched[bisect.bisect_right(touched, (number, True))][1] if touched[-1][0] > number else False

    def _occupied(self, value: Value, needed: int) -> tuple[int, int]:
        """Return the range of bytes of a window that are in use during a moment, as [first, last).

        Args:
            needed: first row of the value that is needed during the moment.
        """
        window = self.windows[value]
        if value not in self.region.sources:
            return 0, window.offset(window.top)
        first = max(window.offset(needed), 0) if self._is_released_by_row(value) else 0
        return first, window.capacity * window.pitch

    def _compute(self, node: RowNode, part: int, number: int) -> list[Operation]:
        value = node.output
        written = node.written(part)
        moves: Sequence[Operation] = ()
        output = self._spot(value, written[0]) if node.accumulates and part else None
        if output is None:
            moves, output = self._make_room(value, *written, number)
        time = len(self.operations)
        spots: list[WindowAddress | IndirectionBuffer] = []
        operand_reads: dict[int, OperandRead] = {}
        reads = node.reads(part)
        for operand, (first, last) in reads:
            if operand in self.keepers:
                keeper = self.keepers[operand]
                spots.append(keeper.spots(first, last))
                keeper.read |= last >= keeper.newest[1]
                continue
            window = self.windows[operand]
            if not window.start <= first < last <= window.top:
                raise AssertionError(f"rows {first} to {last} of {operand!r} are not in the window")
            self.used[operand] = None
            spots.append(self._spot(operand, first))
        self.done[node] = part + 1
        for operand, _ in reads:
            self._find_needed(operand)
        alone = output.offset == 0 and not (value in self.windows and self.windows[value].whole)
        # The result's window held nothing before the call.
        for index, spot in zip(node.readings, spots, strict=True):
            if isinstance(spot, WindowAddress) and spot.value not in self.keepers:
                operand_reads[index] = OperandRead(spot.offset, alone and self._is_done(spot.value))
        self.events.setdefault(node, []).append(time)
        self.operand_reads.setdefault(node, []).append(operand_reads)
        return [*moves, RowsCall(node, part, tuple(spots), output)]

    def _make_room(
        self, value: Value, first: int, last: int, number: int
    ) -> tuple[Sequence[Operation], WindowAddress]:
        """Make room for new rows of a value.

        Args:
            first, last: the new rows, up to but not including `last`.
            number: index of the event that writes them.

        Returns:
            Moves of older rows that must come first, and the address of the new rows.
        """
        if value in self.keepers:
            keeper = self.keepers[value]
            read_next = not self._is_written_next(value, number)
            moves, spot = keeper.write(first, last, self.needed[value], read_next)
            if keeper.carries:
                self._moment([*moves], self._begun())
                moves = []
            return moves, spot
        window = self.windows[value]
        if value in self.region.sources and first < 0:
            return [], self._spot(value, first)  # a source is complete before its top padding is written
        if first != window.top:
            raise AssertionError(f"row {first} of {value!r} comes after row {window.top}")
        made: list[Operation] = []
        start = window.start if window.whole else min(self.needed[value], window.top)
        if start > window.start:
            if window.top > start:
                source, target = self._spot(value, start), WindowAddress(value, 0)
                made.append(MoveRows(source, target, (window.top - start) * window.pitch))
            window.start = start
        window.top = last
        window.capacity = max(window.capacity, last - window.start)
        return made, self._spot(value, first)

    def _find_needed(self, value: Value) -> None:
        """Update the first row of a value that is still needed. It changes only when a reader computes."""
        if value in self.windows and self.windows[value].whole and not self._is_released_by_row(value):
            self.needed[value] = self.windows[value].low
            return
        rows = [held[self.done.get(node, 0)] for node, held in self.held[value]]
        self.needed[value] = min(rows, default=NEVER)

    def _is_released_by_row(self, value: Value) -> bool:
        """Return whether a value is a source whose rows are released one after the other."""
        return value in self.region.sources and value not in self.region.outlives

    def _is_done(self, value: Value) -> bool:
        """Return whether no row of a window is needed any more."""
        return self.needed[value] >= self.windows[value].top

    def _spot(self, value: Value, row: int) -> WindowAddress:
        return WindowAddress(value, self.windows[value].offset(row))


def _accesses(region: StreamRegion, events: Sequence[Event]) -> dict[Value, list[tuple[int, bool]]]:
    """List for each ring and each staged line buffer the events that access it, in order.

    Returns:
        Pairs (index of the event, whether it writes).
    """
    found: dict[Value, list[tuple[int, bool]]] = {value: [] for value in (*region.rings, *region.carried)}
    for time, event in enumerate(events):
        if isinstance(event, Compute):
            for value, _ in event.node.reads(event.part):
                if value in found:
                    found[value].append((time, False))
        value = event.node.output if isinstance(event, Compute) else event.value
        if value in found:
            found[value].append((time, True))
    return found
