"""The parts of a model that are computed row by row, as the templates print them.

Events are pieces of code, of which equal ones are one case of a `switch`; the schedule is a string of their
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from microfold.codegen.literals import C_TYPES, literal
from microfold.codegen.parts import CallText, Port
from microfold.ir.node import Value
from microfold.ir.types import DType
from microfold.ops.rows import ROWS
from microfold.plan.overlap import align
from microfold.plan.stream.memory import StreamMemory
from microfold.plan.stream.operations import Arrive, Fill, Operation, RowsCall, Slide, Spot, Table
from microfold.plan.stream.row_node import pitch
from microfold.plan.stream.windows import Windows
from microfold.support.frozen import frozen


class Takes(IntEnum):
    """Whether a piece of code takes a row of the input: the next one, or the image's first one, again."""

    NO_ROW = 0
    NEXT_ROW = 1
    FIRST_ROW = 2


class CopyText(NamedTuple):
    """Bytes that come from elsewhere.

    Attributes:
        function: ``memcpy``, or what copies rows over where they were.
    """

    function: str
    target: str
    source: str
    size: int


class FillText(NamedTuple):
    """Elements that all hold the same.

    Attributes:
        byte: of which all their bytes are; None: they have different ones.
        value: of an element.
    """

    target: str
    c_type: str
    length: int
    size: int
    byte: int | None
    value: str


class CountText(NamedTuple):
    """Rows more of what the rest reads.

    Attributes:
        front: which of these values.
        rows: how many.
    """

    front: int
    rows: int


class TurnText(NamedTuple):
    """The next slot of a ring.

    Attributes:
        ring: its number.
        slots: how many it has.
    """

    ring: int
    slots: int


class EntriesText(NamedTuple):
    """Addresses in a table.

    Attributes:
        first: index of the first one.
        run: how many there are.
        address: of each; if there are several, `i` counts them.
    """

    first: int
    run: int
    address: str


class TableCallText(NamedTuple):
    """A call that is given a table of the addresses of rows.

    Attributes:
        c_type: of an address.
        length: how many there are.
    """

    c_type: str
    length: int
    entries: tuple[EntriesText, ...]
    call: CallText


Statement = CopyText | FillText | CallText | CountText | TurnText | TableCallText


# Slots that follow each other and are found by a loop.
LOOPED = 4
# What finds a slot, behind the name of the model.
_FIND_SLOT = "_mf_slot("


@frozen
class StreamTexts:
    """What the templates print.

    Attributes:
        kinds: pieces of code; those that take a row of the input come first.
        arrivals: how many do.
        restarts: how many of these take the first row again: they come before the others.
        schedule: numbers of kinds.
        fronts: how many values have rows that are counted.
        rings: how many have slots that take turns.
        rest: the layers behind the last of these parts.
        rows: of the input whose rows are taken; 0: none are.
        row_length: elements of a row.
        row_type: of these, in C.
        given, given_behind: buffers of the caller that the pieces need, and that `rest` needs.
        unused: those that nothing needs.
    """

    kinds: Sequence[Sequence[Statement]]
    arrivals: int
    restarts: int
    schedule: Sequence[int]
    fronts: int
    rings: int
    rest: Sequence[CallText]
    rows: int
    row_length: int
    row_type: str
    given: Sequence[Port]
    given_behind: Sequence[Port]
    unused: Sequence[str]

    @property
    def finds_slots(self) -> bool:
        """Whether slots behind the next one are asked for."""
        return any(_FIND_SLOT in repr(kind) for kind in self.kinds)

    @property
    def headers(self) -> frozenset[str]:
        """Standard headers for what fills rows."""
        fills = (each for kind in self.kinds for each in kind if isinstance(each, FillText))
        return frozenset({"math.h"} if any("INFINITY" in fill.value for fill in fills) else ())

    @property
    def number_type(self) -> str:
        """Of the schedule's elements."""
        return "uint8_t" if len(self.kinds) <= 256 else "uint16_t"

    @property
    def bytes(self) -> int:
        """Of the schedule."""
        return len(self.schedule) * (1 if len(self.kinds) <= 256 else 2)

    @property
    def context_bytes(self) -> int:
        """Of the place in the schedule, which a context keeps."""
        return align(4 * (1 + self.fronts + self.rings))


@frozen
class StreamWriter:
    """Writes the events of a stream.

    Args:
        spot: the address of a spot.
        call: the text of a layer's call, by its index, with addresses of the rows that it reads, by operand,
            and of the one that it writes.
        address_type: of a layer, by its index, the type of the addresses in the table that it is given, in C.
        calls: texts of all layers' calls.
        name: of the model.
        ports: buffers of the caller.
    """

    memory: StreamMemory
    spot: Callable[[Spot], str]
    call: Callable[[int, Mapping[int, str], str], CallText]
    address_type: Callable[[int], str]
    calls: Sequence[CallText]
    name: str
    ports: Sequence[Port]

    @cached_property
    def _counted(self) -> Mapping[Value, int]:
        """Values of which others read all rows, with their numbers: where the next row lies is counted."""
        regions = self.memory.timeline.regions
        rows = [v for region in regions for v in region.fronts if not region.producers[v].accumulates]
        return {value: index for index, value in enumerate(rows)}

    @cached_property
    def _slots(self) -> Mapping[Value, int]:
        """How many slots rings have, of those with several."""
        found: dict[Value, int] = {}
        for windows, _, _ in self.memory.timeline.streams:
            for value in windows.region.rings:
                count = windows.blocks[value].size // pitch(value)
                found |= {value: count} if count > 1 else {}
        return found

    @cached_property
    def _rings(self) -> Mapping[Value, int]:
        """The numbers of these rings."""
        return {value: index for index, value in enumerate(self._slots)}

    @cached_property
    def _image(self) -> Value | None:
        """The input whose rows are taken."""
        taken = (rows for region in self.memory.timeline.regions for rows in region.taken.values())
        return next((rows.image for rows in taken), None)

    def texts(self) -> StreamTexts:
        """All of it."""
        groups, takes_row = self._groups()
        distinct = dict.fromkeys(zip(groups, takes_row, strict=True))
        kinds = sorted(distinct, key=lambda kind: -kind[1])
        numbers = {kind: number for number, kind in enumerate(kinds)}
        image, parts = self._image, self.memory.timeline.parts
        rest = [] if isinstance(parts[-1], Windows) else [self.calls[index] for index in parts[-1]]
        calls = [
            each.call if isinstance(each, TableCallText) else each
            for kind, _ in kinds
            for each in kind
            if isinstance(each, CallText | TableCallText)
        ]
        given, behind = self._read_by(calls), self._read_by(rest)
        # The only input of models whose rows are read where the caller has them.
        rows = [port for port in self.ports if image is not None and port.direction == "input"]
        return StreamTexts(
            kinds=[statements for statements, _ in kinds],
            arrivals=sum(takes > Takes.NO_ROW for _, takes in kinds),
            restarts=sum(takes is Takes.FIRST_ROW for _, takes in kinds),
            schedule=[numbers[kind] for kind in zip(groups, takes_row, strict=True)],
            fronts=len(self._counted),
            rings=len(self._rings),
            rest=rest,
            rows=image.type.shape[ROWS] if image is not None else 0,
            row_length=pitch(image) // image.type.dtype.itemsize if image is not None else 0,
            row_type=C_TYPES[image.type.dtype] if image is not None else "",
            given=given,
            given_behind=behind,
            unused=[port.name for port in self.ports if port not in [*given, *behind, *rows]],
        )

    def _read_by(self, calls: Sequence[CallText]) -> list[Port]:
        """The caller's buffers that calls name."""
        arguments = {argument for call in calls for argument in call.arguments}
        return [port for port in self.ports if port.name in arguments]

    def _groups(self) -> tuple[list[tuple[Statement, ...]], list[Takes]]:
        """Pieces of code up to a call or a row of the input, and whether they take one."""
        # Rows of what is held whole, and the slots that rings write next.
        there: dict[Value, int] = dict.fromkeys((*self._counted, *self._rings), 0)
        groups: list[tuple[Statement, ...]] = []
        takes_row: list[Takes] = []
        taken: set[Value] = set()
        group: list[Statement] = []
        for part in self.memory.timeline.parts[:-1]:
            if not isinstance(part, Windows):
                group += [self.calls[index] for index in part]
                continue
            for moment in part.operations:
                statements = [
                    each for operation in moment for each in self._statements(part, operation, there)
                ]
                if (
                    groups
                    and moment
                    and not group
                    and all(isinstance(each, Slide) and each.source.newest for each in moment)
                ):
                    # Carried home: with the call that has read them.
                    groups[-1] += tuple(statements)
                    continue
                group += statements
                takes = self._takes(moment, taken)
                # What needs no row of the input comes with the first one.
                begun = groups or self._image is None
                if takes > Takes.NO_ROW or (begun and any(isinstance(each, RowsCall) for each in moment)):
                    groups.append(tuple(group))
                    takes_row.append(takes)
                    group = []
        return groups, takes_row

    def _takes(self, event: Sequence[Operation], taken: set[Value]) -> Takes:
        """Whether it takes a row of the input; `taken`: what has been before."""
        value = next((operation.value for operation in event if isinstance(operation, Arrive)), None)
        if value is None:
            return Takes.NO_ROW
        again = bool(taken) and value not in taken
        taken.add(value)
        return Takes.FIRST_ROW if again else Takes.NEXT_ROW

    def _statements(self, windows: Windows, operation: Operation, there: dict[Value, int]) -> list[Statement]:
        match operation:
            case Arrive(value, _, spot):
                skipped = windows.region.taken[value].skipped
                source = f"rows + {skipped}" if skipped else "rows"
                return [CopyText("memcpy", self._row(spot, there), source, pitch(value))]
            case Slide(source, target, size):
                way = self.memory.way_of(operation)
                if way is None:
                    return []
                move = {"up": f"{self.name}_mf_copy_bytes", "down": "memmove", "apart": "memcpy"}[way]
                copied = CopyText(move, self._row(target, there), self._row(source, there), size)
                ring = self._rings.get(source.value)
                if ring is None:
                    return [copied]
                slots = self._slots[source.value]
                there[source.value] = (there[source.value] + 1) % slots
                return [copied, TurnText(ring, slots)]
            case Fill(value, first, last, spot):
                return [self._fill(windows.region.fill(value), value, last - first, self._row(spot, there))]
            case RowsCall():
                return self._call(operation, there)

    def _call(self, operation: RowsCall, there: dict[Value, int]) -> list[Statement]:
        node, output = operation.node, operation.output
        index = self.memory.layer_of(operation)
        read: dict[int, str] = {}
        table: Spot | Table | None = None
        for operand, spot in zip(node.readings, operation.inputs, strict=True):
            if node.by_address and operand == 0:
                table, read[operand] = spot, "table"
            else:
                assert isinstance(spot, Spot)
                read[operand] = self._row(spot, there)
        text = self.call(index, read, self._row(output, there))
        made: list[Statement] = [text]
        if table is not None:
            entries = self._entries(table, there)
            length = entries[-1].first + entries[-1].run
            made = [TableCallText(self.address_type(index), length, entries, text)]
        if node.output in self._counted:
            first, last = operation.rows
            there[node.output] += last - first
            made.append(CountText(self._counted[node.output], last - first))
        return made

    def _entries(self, rows: Spot | Table, there: Mapping[Value, int]) -> tuple[EntriesText, ...]:
        """Addresses of rows; those in slots that follow each other as one."""
        spots = rows.spots if isinstance(rows, Table) else (rows,)
        found: list[EntriesText] = []
        place = 0
        while place < len(spots):
            run = self._run(spots[place:])
            address = self._row(spots[place], there, "(uint32_t)i" if run > 1 else "")
            found.append(EntriesText(place, run, address))
            place += run
        return tuple(found)

    def _run(self, spots: Sequence[Spot]) -> int:
        """How many of the first rows lie in slots that follow each other, if they are worth a loop."""
        slots = self._slots.get(spots[0].value, 0)
        length = pitch(spots[0].value)
        run = 1
        while (
            slots
            and run < len(spots)
            and not spots[run - 1].newest
            and not spots[run].newest
            and spots[run].offset == (spots[run - 1].offset + length) % (slots * length)
        ):
            run += 1
        return run if run >= LOOPED else 1

    def _row(self, spot: Spot, there: Mapping[Value, int], further: str = "") -> str:
        """Where rows lie: of what is held whole, behind the rows that are there; of rings, in their slots.

        Args:
            further: slots behind that one, in C.
        """
        if spot.newest or spot.value not in there:
            return self.spot(spot)
        length = pitch(spot.value)
        if spot.value in self._rings:
            slots, ring = self._slots[spot.value], self._rings[spot.value]
            ahead = (spot.offset // length - there[spot.value]) % slots
            index = f"context->stream.place.slots[{ring}]"
            if ahead or further:
                steps = f"{ahead}u + {further}" if further else f"{ahead}u"
                index = f"{self.name}{_FIND_SLOT}{index}, {steps}, {slots}u)"
            return f"{self.spot(Spot(spot.value, 0))[:-1]} + {length} * (int32_t){index})"
        constant = spot.offset - there[spot.value] * length
        rows = f"context->stream.place.rows[{self._counted[spot.value]}]"
        address = self.spot(Spot(spot.value, constant))
        return f"{address[:-1]} + {length} * (int32_t){rows})"

    def _fill(self, element_of: float, value: Value, rows: int, address: str) -> FillText:
        dtype = value.type.dtype
        fill = np.array(element_of).astype(dtype.numpy)
        held = set(fill.tobytes())
        size = rows * pitch(value)
        byte = held.pop() if len(held) == 1 else None
        # float16 elements are their bits.
        element = fill.view(np.uint16) if dtype is DType.FLOAT16 else fill
        text = literal(element.item())
        return FillText(address, C_TYPES[dtype], size // dtype.itemsize, size, byte, text)
