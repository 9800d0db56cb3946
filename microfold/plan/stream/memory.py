"""Memory plan of a streamed model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from microfold.ir.node import Value
from microfold.ir.views import ALIGNMENT
from microfold.plan.arena import ArenaPlan
from microfold.plan.liveness import Storage
from microfold.plan.problem import units
from microfold.plan.stream.blocks import (
    StreamBlock,
)
from microfold.plan.stream.layers import ComputedRows
from microfold.plan.stream.operations import MoveRows, RowsCall, WindowAddress
from microfold.plan.stream.row_node import pitch
from microfold.plan.stream.timeline import Timeline
from microfold.plan.stream.windows import RegionSchedule


class StreamMemory(Struct, frozen=True, eq=False, dict=True):
    """Content of the arena, with addresses.

    Attributes:
        scratch: scratch memory by layer index.
    """

    timeline: Timeline
    scratch: Mapping[int, StreamBlock]
    arena: ArenaPlan

    @property
    def size(self) -> int:
        """Size of the arena, in bytes."""
        return self.arena.size

    @property
    def needs(self) -> list[int]:
        """Bytes alive during each layer's calls, with its scratch memory."""
        scratch = {index: units(block.size) for index, block in self.scratch.items()}
        layers = range(len(self.timeline.planned))
        return [(self.timeline.alive(index) + scratch.get(index, 0)) * ALIGNMENT for index in layers]

    @cached_property
    def windows(self) -> Mapping[Value, int]:
        """Addresses of the windows of streamed values, including resident values."""
        timeline, offsets = self.timeline, self.arena.offsets
        return {v: offsets[b] + timeline.window_offset(v) for v, b in timeline.window_blocks.items()}

    @cached_property
    def newest(self) -> Mapping[Value, int]:
        """Addresses of the buffers for newest rows: of rings, and stages."""
        return {value: self.arena.offsets[b] for value, b in self.timeline.newest_blocks.items()}

    @property
    def moved(self) -> int:
        """Bytes copied per run: within windows, into rings, and between home buffers and stages."""
        return sum(slide.size for slide in self._slides if self.way_of(slide) is not None)

    @property
    def _slides(self) -> Iterator[MoveRows]:
        return (op for part in self.timeline.parts if isinstance(part, RegionSchedule) for op in part.slides)

    @property
    def copies_within(self) -> bool:
        """Whether rows are copied to lower addresses that may overlap the source."""
        return any(self.way_of(slide) == "up" for slide in self._slides)

    def way_of(self, slide: MoveRows) -> str | None:
        """Return the kind of a copy: `apart` (disjoint), `up` or `down` (overlapping); None: no copy."""
        distance = self.at(slide.source) - self.at(slide.target)
        if not distance:
            return None
        if abs(distance) >= slide.size and not slide.is_within:
            return "apart"
        return "up" if distance > 0 else "down"

    def at(self, spot: WindowAddress) -> int:
        """Return the address of a spot."""
        return (self.newest if spot.newest else self.windows)[spot.value] + spot.offset

    def address(self, value: Value) -> int:
        """Return the address of row 0 of a resident value."""
        return self.arena.offsets[self.timeline.window_blocks[value]] + self.timeline.place(value).offset

    @property
    def computed(self) -> Iterator[ComputedRows | int]:
        """All results in the order of computation: rows, or indices of layers on whole tensors."""
        for part in self.timeline.parts:
            if not isinstance(part, RegionSchedule):
                yield from part
                continue
            for call in part.all_operations:
                if isinstance(call, RowsCall):
                    value, rows = call.node.output, call.node.written(call.part)
                    address = self.at(call.output)
                    size = (rows[1] - rows[0]) * pitch(value)
                    yield ComputedRows(self.layer_of(call), value, rows, address, size)

    def layers_of(self, storage: Storage) -> tuple[int, int]:
        """Return the first and the last layer that run while a storage is in use."""
        assert isinstance(storage, StreamBlock)
        running = [self.timeline.running[moment] for moment in storage.moments]
        return min(running), max(running)

    def layer_of(self, call: RowsCall) -> int:
        """Return the index of the layer that a call runs."""
        return self.timeline.layer_by_form[call.node, call.node.forms[call.part]]
