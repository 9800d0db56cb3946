"""Windows: each streamed value keeps the rows that are still needed, and these only, in one place.

Before a row is written, rows that nothing needs any more leave the window: those behind them move up. So the
rows of a band lie behind each other, rows of padding included, and every band of a layer is the same call.
What is held whole, since something outside of the region reads or has computed it, has a window for all of
it, in which nothing moves. There are other ways to keep rows (`microfold.plan.stream.keepers`).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from microfold.ir.node import Value
from microfold.ops.rows import ROWS
from microfold.plan.stream.blocks import Block, block
from microfold.plan.stream.carried import Carried
from microfold.plan.stream.events import Arrival, Compute, Event, Padding, events_of
from microfold.plan.stream.keepers import Keeper
from microfold.plan.stream.operations import Arrive, Fill, Operation, RowsCall, Slide, Spot, Table
from microfold.plan.stream.region import Region
from microfold.plan.stream.rings import Ring, in_slots
from microfold.plan.stream.row_node import NEVER, RowNode, pitch
from microfold.plan.stream.window import Held, Window
from microfold.support.frozen import frozen


@frozen
class Reach:
    """What decides how the result of a node may lie over what one of its operands was: one event.

    Attributes:
        offset: where the first row that is read lies in the operand's window, bytes.
        free: the window holds nothing behind the event, and that of the result nothing before it.
    """

    offset: int
    free: bool


@frozen(eq=False)
class Windows:
    """A region with all that happens in it; where the windows lie is not known yet.

    Attributes:
        operations: those of each moment: of an event, or of carried rows before or behind one.
        blocks: the windows.
        occupied: of each window.
        events: of each node, the moments at which it computes.
        reaches: of each node, by operand and event.
        margins: rows above row 0 of what is held whole.
        newest: of rings and carried rows, where the newest rows lie; their `blocks` are what is kept.
    """

    region: Region
    operations: Sequence[Sequence[Operation]]
    blocks: Mapping[Value, Block]
    events: Mapping[RowNode, Sequence[int]]
    reaches: Mapping[RowNode, Sequence[Mapping[int, Reach]]]
    occupied: Mapping[Value, Held]
    margins: Mapping[Value, int]
    newest: Mapping[Value, Block]

    @property
    def slides(self) -> Iterator[Slide]:
        """Rows that move."""
        return (op for op in self.all_operations if isinstance(op, Slide))

    @property
    def all_operations(self) -> Iterator[Operation]:
        """Those of all moments, in order."""
        return (operation for moment in self.operations for operation in moment)

    def shift(self, value: Value) -> int:
        """Where row 0 of what is held whole lies in its window, bytes."""
        return self.margins[value] * pitch(value)


def windows_of(region: Region, margins: Mapping[Value, tuple[int, int]] | None = None) -> Windows:
    """What happens in a region, event by event.

    Args:
        margins: rows above and below what is held whole, if other regions need more than this one.
    """
    return _Recorder(region, margins or {}, events_of(region)).record()


@dataclass
class _Recorder:
    """What has happened so far.

    Attributes:
        touches: see `_touches`.
        done: parts that are computed.
        held: what reads a value, with the first row that each of its parts still needs.
        needed: the first row that is still needed.
        used: whose windows operations of the next moment read or write.
        changed: those of the last moment, which may hold less now.
    """

    region: Region
    given: Mapping[Value, tuple[int, int]]
    all_events: Sequence[Event]
    touches: Mapping[Value, Sequence[tuple[int, bool]]] = field(
        default_factory=dict[Value, Sequence[tuple[int, bool]]]
    )
    keepers: dict[Value, Keeper] = field(default_factory=dict[Value, Keeper])
    operations: list[list[Operation]] = field(default_factory=list[list[Operation]])
    windows: dict[Value, Window] = field(default_factory=dict[Value, Window])
    done: dict[RowNode, int] = field(default_factory=dict[RowNode, int])
    events: dict[RowNode, list[int]] = field(default_factory=dict[RowNode, list[int]])
    reaches: dict[RowNode, list[Mapping[int, Reach]]] = field(
        default_factory=dict[RowNode, list[Mapping[int, Reach]]]
    )
    held: dict[Value, Sequence[tuple[RowNode, Sequence[int]]]] = field(
        default_factory=dict[Value, Sequence[tuple[RowNode, Sequence[int]]]]
    )
    needed: dict[Value, int] = field(default_factory=dict[Value, int])
    used: dict[Value, None] = field(default_factory=dict[Value, None])
    changed: dict[Value, None] = field(default_factory=dict[Value, None])

    def record(self) -> Windows:
        region = self.region
        margins = {
            value: self.given.get(value, (region.above(value), region.below(value))) for value in region.held
        }
        for value in region.rings:
            self.keepers[value] = Ring(value, pitch(value), -region.above(value))
        for value in region.carried:
            self.keepers[value] = Carried(value, pitch(value), -region.above(value))
        for value in (*region.inputs, *region.sources, *region.producers):
            if value in self.keepers:
                continue
            above, below = margins.get(value, (region.above(value), 0))
            low = -region.above(value)
            window = Window(pitch(value), -above, low, low, value in margins)
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
        self.touches = _touches(region, self.all_events)
        for number, event in enumerate(self.all_events):
            self._event(number, event)
        end = len(self.operations)
        for value in region.fronts:
            # From the first row to the end.
            self.windows[value].keep(self.windows[value].first, end)
        for value in region.sources:
            # From the beginning to the last row that is read.
            window = self.windows[value]
            window.keep(0, end if value in region.outlives else window.behind(end))
        used = {value: window for value, window in self.windows.items() if window.changes}
        blocks = {
            value: block(value.name, window.capacity * window.pitch, window.times(end))
            for value, window in used.items()
        }
        newest: dict[Value, Block] = {}
        for value, keeper in self.keepers.items():
            times = keeper.newest_times or keeper.times
            blocks[value] = block(value.name, keeper.size, keeper.times or times)
            newest[value] = block(f"{value.name}, newest", max(keeper.width, 1) * keeper.pitch, times)
        # How many rows stay is known now that all has happened.
        rings = {value: self.keepers[value].size for value in region.rings}
        return Windows(
            region,
            [[in_slots(operation, rings) for operation in moment] for moment in self.operations]
            if rings
            else self.operations,
            blocks,
            self.events,
            self.reaches,
            {value: window.held(end) for value, window in used.items()},
            {value: above for value, (above, _) in margins.items()},
            newest,
        )

    def _event(self, number: int, event: Event) -> None:
        made: list[Operation] = []
        # What it reads is there until it is over.
        begun = self._begun()
        match event:
            case Arrival(value, row):
                moves, spot = self._room(value, row, row + 1, number)
                made += [*moves, Arrive(value, row, spot)]
            case Padding(value, first, last):
                keeper = self.keepers.get(value)
                for part in keeper.padding(first, last) if keeper is not None else [(first, last)]:
                    moves, spot = self._room(value, *part, number)
                    made += [*moves, Fill(value, *part, spot)]
            case Compute(node, part):
                made += self._compute(node, part, number)
                value = node.output
        if value in self.windows:
            self.used[value] = None
        self._moment(made, begun)
        self._keep_newest(number)

    def _begun(self) -> dict[Value, int]:
        """The first row of each source that is needed now."""
        return {value: min(self.needed[value], self.windows[value].top) for value in self.region.sources}

    def _moment(self, made: list[Operation], begun: Mapping[Value, int]) -> None:
        """Operations during which all that there is must hold.

        Args:
            begun: the first row of each source that is needed when they begin.
        """
        time = len(self.operations)
        self.operations.append(made)
        for keeper in self.keepers.values():
            keeper.mark(time)
        # Of all others, the same bytes hold something.
        for value in self.changed | self.used:
            window = self.windows[value]
            holds = value in self.used or self.needed[value] < window.top
            window.hold(time, self._occupied(value, begun.get(value, window.start)) if holds else None)
        self.changed, self.used = self.used, {}

    def _keep_newest(self, number: int) -> None:
        """Newest rows that a call has read, or will not read soon, move to where they are kept."""
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
        """Whether new rows come before others are read, behind an event."""
        touched = self.touches[value]
        return touched[bisect.bisect_right(touched, (number, True))][1] if touched[-1][0] > number else False

    def _occupied(self, value: Value, needed: int) -> tuple[int, int]:
        """The bytes that hold something in an event."""
        window = self.windows[value]
        if value not in self.region.sources:
            return 0, window.offset(window.top)
        first = max(window.offset(needed), 0) if self._dies(value) else 0
        return first, window.capacity * window.pitch

    def _compute(self, node: RowNode, part: int, number: int) -> list[Operation]:
        value = node.output
        written = node.written(part)
        moves: Sequence[Operation] = ()
        output = self._spot(value, written[0]) if node.accumulates and part else None
        if output is None:
            moves, output = self._room(value, *written, number)
        time = len(self.operations)
        spots: list[Spot | Table] = []
        reaches: dict[int, Reach] = {}
        reads = node.reads(part)
        for operand, (first, last) in reads:
            if operand in self.keepers:
                keeper = self.keepers[operand]
                spots.append(keeper.spots(first, last))
                keeper.read |= last >= keeper.newest[1]
                continue
            window = self.windows[operand]
            if not window.start <= first < last <= window.top:
                raise AssertionError(f"rows {first} to {last} of {operand!r} are not there")
            self.used[operand] = None
            spots.append(self._spot(operand, first))
        self.done[node] = part + 1
        for operand, _ in reads:
            self._find_needed(operand)
        alone = output.offset == 0 and not (value in self.windows and self.windows[value].whole)
        for index, spot in zip(node.readings, spots, strict=True):
            if isinstance(spot, Spot) and spot.value not in self.keepers:
                reaches[index] = Reach(spot.offset, alone and self._is_done(spot.value))
        self.events.setdefault(node, []).append(time)
        self.reaches.setdefault(node, []).append(reaches)
        return [*moves, RowsCall(node, part, tuple(spots), output)]

    def _room(self, value: Value, first: int, last: int, number: int) -> tuple[Sequence[Operation], Spot]:
        """Make room for the new rows of an event, and where they come to."""
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
            return [], self._spot(value, first)  # what lies above a source comes behind it
        if first != window.top:
            raise AssertionError(f"row {first} of {value!r} comes behind row {window.top}")
        made: list[Operation] = []
        start = window.start if window.whole else min(self.needed[value], window.top)
        if start > window.start:
            if window.top > start:
                source, target = self._spot(value, start), Spot(value, 0)
                made.append(Slide(source, target, (window.top - start) * window.pitch))
            window.start = start
        window.top = last
        window.capacity = max(window.capacity, last - window.start)
        return made, self._spot(value, first)

    def _find_needed(self, value: Value) -> None:
        """The first row of a value that is still needed; it changes when what reads it is computed."""
        if value in self.windows and self.windows[value].whole and not self._dies(value):
            self.needed[value] = self.windows[value].low
            return
        rows = [held[self.done.get(node, 0)] for node, held in self.held[value]]
        self.needed[value] = min(rows, default=NEVER)

    def _dies(self, value: Value) -> bool:
        """Rows of something that is there whole are given up one after the other."""
        return value in self.region.sources and value not in self.region.outlives

    def _is_done(self, value: Value) -> bool:
        """Nothing in a window is needed."""
        return self.needed[value] >= self.windows[value].top

    def _spot(self, value: Value, row: int) -> Spot:
        return Spot(value, self.windows[value].offset(row))


def _touches(region: Region, events: Sequence[Event]) -> dict[Value, list[tuple[int, bool]]]:
    """When rows that lie apart are read and written, by events in order; true: written."""
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
