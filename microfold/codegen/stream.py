"""C code of line-buffer streaming: the schedule of row operations as a `switch` and an array of case numbers.

The planner's schedule is a long list of row operations in which the same few groups recur: copy a row, shift
a window, call a kernel. Each distinct group becomes one case of a `switch`, and the schedule an array of case
numbers::

    schedule[] = { 0, 0, 1, 3, 1, 3, 4, ... };

    for each entry of the schedule:
        switch (entry) {
        case 0: copy an input row;                               cases below `arrivals` consume
        case 1: shift the window, copy an input row;             a row of the input
        ...
        case 3: conv(...);
        case 4: conv(...), add the finished row to a counter;
        }

Groups are equal only if their text is. Addresses that advance with every row would make all texts different.
They are therefore written relative to counters in the context: the number of finished rows of each resident
result, and the next slot of each ring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from microfold.codegen.literals import C_TYPES, literal
from microfold.codegen.parts import CallText, ModelPort
from microfold.ir.node import Value
from microfold.ir.types import DType
from microfold.ops.rows import ROWS
from microfold.plan.overlap import align
from microfold.plan.stream.memory import StreamMemory
from microfold.plan.stream.operations import (
    Fill,
    IndirectionBuffer,
    MoveRows,
    Operation,
    ReceiveRow,
    RowsCall,
    WindowAddress,
)
from microfold.plan.stream.row_node import pitch
from microfold.plan.stream.windows import RegionSchedule


class InputRowUse(IntEnum):
    """Row of the input that a group of statements consumes, if any.

    FIRST_ROW restarts at the top of the image, for a further value that reads it, e.g. the next column tile.
    """

    NO_ROW = 0
    NEXT_ROW = 1
    FIRST_ROW = 2


class CopyStatement(NamedTuple):
    """Copy of bytes.

    Attributes:
        function: C function: ``memcpy``, or one that allows target and source to overlap.
        target, source: addresses, as C expressions.
        size: number of bytes.
    """

    function: str
    target: str
    source: str
    size: int


class FillStatement(NamedTuple):
    """Fill of a buffer with one element value, for padding.

    Attributes:
        target: address, as a C expression.
        c_type: C type of an element.
        length: number of elements.
        size: number of bytes.
        byte: value of every byte, for ``memset``; None if the bytes of an element differ.
        value: element value, as a C literal.
    """

    target: str
    c_type: str
    length: int
    size: int
    byte: int | None
    value: str


class AdvanceRows(NamedTuple):
    """Increment of the number of finished rows of a resident result.

    Attributes:
        front: index of the row counter.
        rows: number of rows.
    """

    front: int
    rows: int


class AdvanceSlot(NamedTuple):
    """Step to the next slot of a ring.

    Attributes:
        ring: index of the slot counter.
        slots: number of slots of the ring.
    """

    ring: int
    slots: int


class IndirectionEntries(NamedTuple):
    """Consecutive entries of an indirection buffer that one statement or loop writes.

    Attributes:
        first: index of the first entry.
        run: number of entries.
        address: address of a row, as a C expression. If `run` > 1, it contains the loop counter ``i``.
    """

    first: int
    run: int
    address: str


class IndirectCall(NamedTuple):
    """Call of a kernel whose first input is an indirection buffer, a table of row addresses.

    Attributes:
        c_type: C type of an address.
        length: number of addresses.
        entries: contents of the buffer.
        call: call of the kernel.
    """

    c_type: str
    length: int
    entries: tuple[IndirectionEntries, ...]
    call: CallText


Statement = CopyStatement | FillStatement | CallText | AdvanceRows | AdvanceSlot | IndirectCall


# Minimum number of consecutive slots whose addresses a loop writes: fewer are shorter without a loop.
LOOPED = 4
# C function that maps a distance from the next slot to a slot number, without the model's prefix.
_FIND_SLOT = "_mf_slot("


class StreamTexts(Struct, frozen=True):
    """Data of the template `model/stream.j2`, for a model with streamed regions.

    Attributes:
        kinds: distinct groups of statements, the cases of the `switch`. Groups that consume the first row of
            the input come first, then those that consume the next row, then all others.
        arrivals: number of cases that consume a row of the input.
        restarts: number of these that restart at the first row.
        schedule: case numbers in the order of execution.
        fronts: number of row counters in the context, one for each resident result.
        rings: number of slot counters in the context, one for each ring with several slots.
        rest: calls of the layers after the last region, which compute whole tensors.
        rows: height of the input that is consumed row by row; 0 without one.
        row_length: elements of a row of this input.
        row_type: C type of these elements.
        given, given_behind: buffers of the caller that the cases use, and those that `rest` uses.
        unused: names of the caller's buffers that neither of them uses.
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
    given: Sequence[ModelPort]
    given_behind: Sequence[ModelPort]
    unused: Sequence[str]

    @property
    def finds_slots(self) -> bool:
        """Whether some address needs the C function that finds a slot after the next one."""
        return any(_FIND_SLOT in repr(kind) for kind in self.kinds)

    @property
    def headers(self) -> frozenset[str]:
        """Standard headers for the fill values."""
        fills = (each for kind in self.kinds for each in kind if isinstance(each, FillStatement))
        return frozenset({"math.h"} if any("INFINITY" in fill.value for fill in fills) else ())

    @property
    def number_type(self) -> str:
        """C type of an element of the schedule."""
        return "uint8_t" if len(self.kinds) <= 256 else "uint16_t"

    @property
    def bytes(self) -> int:
        """Size of the schedule, in bytes of flash."""
        return len(self.schedule) * (1 if len(self.kinds) <= 256 else 2)

    @property
    def context_bytes(self) -> int:
        """Size of the position in the schedule and of all counters in the context, in bytes."""
        return align(4 * (1 + self.fronts + self.rings))


class StreamWriter(Struct, frozen=True, dict=True):
    """Generator of the `StreamTexts` of a model.

    Args:
        memory: planned schedule and addresses.
        spot: returns the address of rows as a C expression.
        call: returns the call of a layer, from the layer's index, the addresses of the rows that it reads (by
            operand index), and the address of the rows that it writes.
        address_type: returns the C type of the entries of a layer's indirection buffer, from its index.
        calls: calls of all layers, by layer index.
        name: prefix of the model's C names.
        ports: buffers that the caller passes.
    """

    memory: StreamMemory
    spot: Callable[[WindowAddress], str]
    call: Callable[[int, Mapping[int, str], str], CallText]
    address_type: Callable[[int], str]
    calls: Sequence[CallText]
    name: str
    ports: Sequence[ModelPort]

    @cached_property
    def _counted(self) -> Mapping[Value, int]:
        """Resident results, each with the index of the counter of its finished rows.

        Accumulated results have no counter, because their only row never advances.
        """
        regions = self.memory.timeline.regions
        rows = [v for region in regions for v in region.fronts if not region.producers[v].accumulates]
        return {value: index for index, value in enumerate(rows)}

    @cached_property
    def _slots(self) -> Mapping[Value, int]:
        """Rings with several slots, each with its number of slots."""
        found: dict[Value, int] = {}
        for windows, _, _ in self.memory.timeline.streams:
            for value in windows.region.rings:
                count = windows.blocks[value].size // pitch(value)
                found |= {value: count} if count > 1 else {}
        return found

    @cached_property
    def _rings(self) -> Mapping[Value, int]:
        """Rings with several slots, each with the index of its slot counter."""
        return {value: index for index, value in enumerate(self._slots)}

    @cached_property
    def _image(self) -> Value | None:
        """Input that is consumed row by row, if any."""
        taken = (rows for region in self.memory.timeline.regions for rows in region.taken.values())
        return next((rows.image for rows in taken), None)

    def texts(self) -> StreamTexts:
        """Return the template data of the whole model."""
        groups, takes_row = self._groups()
        distinct = dict.fromkeys(zip(groups, takes_row, strict=True))
        kinds = sorted(distinct, key=lambda kind: -kind[1])
        numbers = {kind: number for number, kind in enumerate(kinds)}
        image, parts = self._image, self.memory.timeline.parts
        rest = [] if isinstance(parts[-1], RegionSchedule) else [self.calls[index] for index in parts[-1]]
        calls = [
            each.call if isinstance(each, IndirectCall) else each
            for kind, _ in kinds
            for each in kind
            if isinstance(each, CallText | IndirectCall)
        ]
        given, behind = self._read_by(calls), self._read_by(rest)
        # The only input of the model, whose rows are read from the caller's memory.
        rows = [port for port in self.ports if image is not None and port.direction == "input"]
        return StreamTexts(
            kinds=[statements for statements, _ in kinds],
            arrivals=sum(takes > InputRowUse.NO_ROW for _, takes in kinds),
            restarts=sum(takes is InputRowUse.FIRST_ROW for _, takes in kinds),
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

    def _read_by(self, calls: Sequence[CallText]) -> list[ModelPort]:
        """Return the caller's buffers that calls use."""
        arguments = {argument for call in calls for argument in call.arguments}
        return [port for port in self.ports if port.name in arguments]

    def _groups(self) -> tuple[list[tuple[Statement, ...]], list[InputRowUse]]:
        """Return the groups of statements in order of execution, and the input row that each consumes.

        A group ends with a kernel call or with a row of the input.
        """
        # Finished rows of resident results, and the next slots of rings.
        counters: dict[Value, int] = dict.fromkeys((*self._counted, *self._rings), 0)
        groups: list[tuple[Statement, ...]] = []
        takes_row: list[InputRowUse] = []
        taken: set[Value] = set()
        group: list[Statement] = []
        for part in self.memory.timeline.parts[:-1]:
            if not isinstance(part, RegionSchedule):
                group += [self.calls[index] for index in part]
                continue
            for moment in part.operations:
                statements = [
                    each for operation in moment for each in self._statements(part, operation, counters)
                ]
                if (
                    groups
                    and moment
                    and not group
                    and all(isinstance(each, MoveRows) and each.source.newest for each in moment)
                ):
                    # Copies back from a staged line buffer belong to the call that has read it.
                    groups[-1] += tuple(statements)
                    continue
                group += statements
                takes = self._takes(moment, taken)
                # Until the first row of the input arrives, calls that need none join its group.
                begun = groups or self._image is None
                if takes > InputRowUse.NO_ROW or (
                    begun and any(isinstance(each, RowsCall) for each in moment)
                ):
                    groups.append(tuple(group))
                    takes_row.append(takes)
                    group = []
        return groups, takes_row

    def _takes(self, event: Sequence[Operation], taken: set[Value]) -> InputRowUse:
        """Return the input row that an event consumes; `taken`: values that have consumed rows, updated."""
        value = next((operation.value for operation in event if isinstance(operation, ReceiveRow)), None)
        if value is None:
            return InputRowUse.NO_ROW
        again = bool(taken) and value not in taken
        taken.add(value)
        return InputRowUse.FIRST_ROW if again else InputRowUse.NEXT_ROW

    def _statements(
        self, windows: RegionSchedule, operation: Operation, counters: dict[Value, int]
    ) -> list[Statement]:
        match operation:
            case ReceiveRow(value, _, spot):
                skipped = windows.region.taken[value].skipped
                source = f"rows + {skipped}" if skipped else "rows"
                return [CopyStatement("memcpy", self._row(spot, counters), source, pitch(value))]
            case MoveRows(source, target, size):
                way = self.memory.way_of(operation)
                if way is None:
                    return []
                move = {"up": f"{self.name}_mf_copy_bytes", "down": "memmove", "apart": "memcpy"}[way]
                copied = CopyStatement(move, self._row(target, counters), self._row(source, counters), size)
                ring = self._rings.get(source.value)
                if ring is None:
                    return [copied]
                slots = self._slots[source.value]
                counters[source.value] = (counters[source.value] + 1) % slots
                return [copied, AdvanceSlot(ring, slots)]
            case Fill(value, first, last, spot):
                return [
                    self._fill(windows.region.fill(value), value, last - first, self._row(spot, counters))
                ]
            case RowsCall():
                return self._call(operation, counters)

    def _call(self, operation: RowsCall, counters: dict[Value, int]) -> list[Statement]:
        node, output = operation.node, operation.output
        index = self.memory.layer_of(operation)
        read: dict[int, str] = {}
        table: WindowAddress | IndirectionBuffer | None = None
        for operand, spot in zip(node.readings, operation.inputs, strict=True):
            if node.by_address and operand == 0:
                table, read[operand] = spot, "table"
            else:
                assert isinstance(spot, WindowAddress)
                read[operand] = self._row(spot, counters)
        text = self.call(index, read, self._row(output, counters))
        made: list[Statement] = [text]
        if table is not None:
            entries = self._entries(table, counters)
            length = entries[-1].first + entries[-1].run
            made = [IndirectCall(self.address_type(index), length, entries, text)]
        if node.output in self._counted:
            first, last = operation.rows
            counters[node.output] += last - first
            made.append(AdvanceRows(self._counted[node.output], last - first))
        return made

    def _entries(
        self, rows: WindowAddress | IndirectionBuffer, counters: Mapping[Value, int]
    ) -> tuple[IndirectionEntries, ...]:
        """Return the contents of an indirection buffer; consecutive slots become one entry."""
        spots = rows.spots if isinstance(rows, IndirectionBuffer) else (rows,)
        found: list[IndirectionEntries] = []
        place = 0
        while place < len(spots):
            run = self._run(spots[place:])
            address = self._row(spots[place], counters, "(uint32_t)i" if run > 1 else "")
            found.append(IndirectionEntries(place, run, address))
            place += run
        return tuple(found)

    def _run(self, spots: Sequence[WindowAddress]) -> int:
        """Return how many of the first rows are in consecutive slots; 1 if too few for a loop."""
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

    def _row(self, spot: WindowAddress, counters: Mapping[Value, int], further: str = "") -> str:
        """Return the address of rows as a C expression.

        Addresses in resident results are relative to their row counter, those in rings to the next slot. All
        other addresses are constant.

        Args:
            counters: values of the counters when the address is evaluated.
            further: number of slots to advance from this row, as a C expression.
        """
        if spot.newest or spot.value not in counters:
            return self.spot(spot)
        length = pitch(spot.value)
        if spot.value in self._rings:
            slots, ring = self._slots[spot.value], self._rings[spot.value]
            ahead = (spot.offset // length - counters[spot.value]) % slots
            index = f"context->stream.place.slots[{ring}]"
            if ahead or further:
                steps = f"{ahead}u + {further}" if further else f"{ahead}u"
                index = f"{self.name}{_FIND_SLOT}{index}, {steps}, {slots}u)"
            return f"{self.spot(WindowAddress(spot.value, 0))[:-1]} + {length} * (int32_t){index})"
        constant = spot.offset - counters[spot.value] * length
        rows = f"context->stream.place.rows[{self._counted[spot.value]}]"
        address = self.spot(WindowAddress(spot.value, constant))
        return f"{address[:-1]} + {length} * (int32_t){rows})"

    def _fill(self, element_of: float, value: Value, rows: int, address: str) -> FillStatement:
        dtype = value.type.dtype
        fill = np.array(element_of).astype(dtype.numpy)
        held = set(fill.tobytes())
        size = rows * pitch(value)
        byte = held.pop() if len(held) == 1 else None
        # C99 has no float16: write the bits of an element.
        element = fill.view(np.uint16) if dtype is DType.FLOAT16 else fill
        text = literal(element.item())
        return FillStatement(address, C_TYPES[dtype], size // dtype.itemsize, size, byte, text)
