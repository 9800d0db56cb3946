"""Windows: each streamed value keeps the rows that are still needed, and these only, in one place.

Before a row is written, rows that nothing needs any more leave the window: those behind them move up. So the
rows of a band lie behind each other, rows of padding included, and every band of a layer is the same call.
What the rest of a graph reads has a window for all of it, in which nothing moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from microfold.ir.node import Value
from microfold.plan.stream.blocks import Block, block, span
from microfold.plan.stream.events import Arrival, Compute, Event, Padding, events_of
from microfold.plan.stream.operations import Arrive, Fill, Operation, RowsCall, Slide, Spot
from microfold.plan.stream.region import NEVER, Region, RowNode, pitch


@dataclass
class _Window:
    """The rows of a value as they come and go.

    Attributes:
        start: the row at the beginning of the window.
        top: the first row that is not there yet.
        capacity: rows that there are at most.
        times: events in which it holds something, as bits.
        whole: nothing leaves it.
    """

    pitch: int
    start: int
    top: int
    whole: bool
    capacity: int = 0
    times: int = 0

    def offset(self, row: int) -> int:
        return (row - self.start) * self.pitch


@dataclass(frozen=True)
class Reach:
    """What decides how the result of a node may lie over what one of its operands was: one event.

    Attributes:
        offset: where the first row that is read lies in the operand's window, bytes.
        free: the window holds nothing behind the event, and that of the result nothing before it.
    """

    offset: int
    free: bool


@dataclass(frozen=True, eq=False)
class Windows:
    """A region with all that happens in it; where the windows lie is not known yet.

    Attributes:
        operations: those of each event.
        blocks: the windows.
        events: of each node, those in which it computes.
        reaches: of each node, by operand and event.
    """

    region: Region
    operations: Sequence[Sequence[Operation]]
    blocks: Mapping[Value, Block]
    events: Mapping[RowNode, Sequence[int]]
    reaches: Mapping[RowNode, Sequence[Mapping[int, Reach]]]

    @property
    def moved(self) -> int:
        """Bytes that move within windows, in one run."""
        return sum(op.size for op in self.all_operations if isinstance(op, Slide))

    @property
    def all_operations(self) -> Iterator[Operation]:
        """Those of all events, in order."""
        return (operation for event in self.operations for operation in event)

    def front(self, value: Value) -> int:
        """Where row 0 of a front lies in its window, bytes."""
        return self.region.above(value) * pitch(value)


def windows_of(region: Region) -> Windows:
    """What happens in a region, event by event."""
    return _Recorder(region).record()


@dataclass
class _Recorder:
    region: Region
    windows: dict[Value, _Window] = field(default_factory=dict[Value, _Window])
    done: dict[RowNode, int] = field(default_factory=dict[RowNode, int])
    events: dict[RowNode, list[int]] = field(default_factory=dict[RowNode, list[int]])
    reaches: dict[RowNode, list[Mapping[int, Reach]]] = field(
        default_factory=dict[RowNode, list[Mapping[int, Reach]]]
    )

    def record(self) -> Windows:
        for value in (*self.region.inputs, *self.region.producers):
            first = -self.region.above(value)
            self.windows[value] = _Window(pitch(value), first, first, value in self.region.fronts)
        operations = [self._event(time, event) for time, event in enumerate(events_of(self.region))]
        end = len(operations)
        for value in self.region.fronts:
            # From the first row to the end.
            window = self.windows[value]
            window.times = span((window.times & -window.times).bit_length() - 1, end - 1)
        blocks = {
            value: block(value.name, window.capacity * window.pitch, window.times)
            for value, window in self.windows.items()
            if window.times
        }
        return Windows(self.region, operations, blocks, self.events, self.reaches)

    def _event(self, time: int, event: Event) -> list[Operation]:
        made: list[Operation] = []
        match event:
            case Arrival(value, row):
                made += self._room(value, row, row + 1)
                made.append(Arrive(value, row, self._spot(value, row)))
            case Padding(value, first, last):
                made += self._room(value, first, last)
                made.append(Fill(value, first, last, self._spot(value, first)))
            case Compute(node, part):
                made += self._compute(node, part, time)
                value = node.output
        self.windows[value].times |= 1 << time
        for other, window in self.windows.items():
            if self._needed(other) < window.top:
                window.times |= 1 << time
        return made

    def _compute(self, node: RowNode, part: int, time: int) -> list[Operation]:
        value = node.output
        written = node.written(part)
        made = self._room(value, *written) if self.windows[value].top < written[1] else []
        reads = node.reads(part)
        for operand, (first, last) in reads:
            window = self.windows[operand]
            if not window.start <= first < last <= window.top:
                raise AssertionError(f"rows {first} to {last} of {operand!r} are not there")
            window.times |= 1 << time
        spots = tuple(self._spot(operand, first) for operand, (first, _) in reads)
        self.done[node] = part + 1
        output = self._spot(value, written[0])
        alone = output.offset == 0 and not self.windows[value].whole
        self.events.setdefault(node, []).append(time)
        self.reaches.setdefault(node, []).append(
            {
                index: Reach(spot.offset, alone and self._is_done(spot.value))
                for index, spot in zip(node.readings, spots, strict=True)
            }
        )
        return [*made, RowsCall(node, part, spots, output)]

    def _room(self, value: Value, first: int, last: int) -> list[Operation]:
        """Make room for rows at the top of a window."""
        window = self.windows[value]
        if first != window.top:
            raise AssertionError(f"row {first} of {value!r} comes behind row {window.top}")
        made: list[Operation] = []
        start = window.start if window.whole else min(self._needed(value), window.top)
        if start > window.start:
            if window.top > start:
                source, target = self._spot(value, start), Spot(value, 0)
                made.append(Slide(source, target, (window.top - start) * window.pitch))
            window.start = start
        window.top = last
        window.capacity = max(window.capacity, last - window.start)
        return made

    def _needed(self, value: Value) -> int:
        """The first row that is still needed."""
        if self.windows[value].whole:
            return self.windows[value].start
        readers = self.region.readers.get(value, ())
        return min((n.readings[i].held[self.done.get(n, 0)] for n, i in readers), default=NEVER)

    def _is_done(self, value: Value) -> bool:
        """Nothing in a window is needed."""
        return self._needed(value) >= self.windows[value].top

    def _spot(self, value: Value, row: int) -> Spot:
        return Spot(value, self.windows[value].offset(row))
