"""Timeline of a partly streamed model: the order of its computations, and the lifetimes of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.views import ALIGNMENT, StoragePlace, Views, needs_no_code
from microfold.kernels.layer import LayerContext
from microfold.plan.liveness import Storage, storages
from microfold.plan.overlap import align
from microfold.plan.stream.blocks import (
    Occupied,
    StreamBlock,
    block,
    held_at,
    span,
)
from microfold.plan.stream.layers import PlannedLayer, band_layers
from microfold.plan.stream.partial_liveness import occupied_bytes
from microfold.plan.stream.region import StreamRegion
from microfold.plan.stream.row_node import Form, RowNode, pitch
from microfold.plan.stream.window import UsedBytes
from microfold.plan.stream.windows import RegionSchedule, schedule_region


class Timeline:
    """Timeline of a model whose regions are streamed.

    Nodes between regions compute whole tensors, as in models without streaming. Layers are in the order in
    which they first run.

    Args:
        regions: regions of one graph, in its order.
        layers: layers of the nodes that compute whole tensors.
        elsewhere: values that own storage outside of the arena.
        alignment: alignment of all blocks in the arena, in bytes.
        windows: returns the schedule of a region, as `schedule_region` does; may be cached across other
            partitions.
    """

    def __init__(
        self,
        regions: Sequence[StreamRegion],
        layers: Mapping[Node, LayerContext],
        elsewhere: Collection[Value] = (),
        alignment: int = ALIGNMENT,
        windows: Callable[[StreamRegion, Mapping[Value, tuple[int, int]]], RegionSchedule] = schedule_region,
    ):
        self.regions = regions
        self.alignment = alignment
        self.whole = regions[-1].graph
        views = Views(self.whole)
        taken = {value: rows for region in regions for value, rows in region.taken.items()}
        pushed = {views[rows.image].root for rows in taken.values()}
        fronts = {value: None for region in regions for value in region.fronts}
        streamed = {each.node for region in regions for each in region.nodes}
        # Columns of an input arrive with its rows: no node computes them.
        streamed |= {node for node in self.whole.nodes if not taken.keys().isdisjoint(node.outputs)}
        self._streamed = streamed
        # The model without its streamed nodes, for planning of whole tensors.
        self.graph: Graph = replace(
            self.whole,
            inputs=(*(value for value in self.whole.inputs if value not in pushed), *fronts),
            nodes=tuple(node for node in self.whole.nodes if node not in streamed),
        )
        self._views = Views(self.graph)
        self._margins = _margins(regions)
        self.streams: list[tuple[RegionSchedule, int, int]] = []
        self.planned: list[PlannedLayer] = []
        self.parts: list[RegionSchedule | Sequence[int]] = []
        self._moments_of_calls: list[int] = []
        self.end = 0
        place = 0
        for index, region in enumerate(regions):
            self._add_calls(self.whole.nodes[place : region.start], layers, index - 1)
            self._add_stream(windows(region, self._margins), index)
            place = region.end
        self._add_calls(self.whole.nodes[place:], layers, len(regions) - 1)
        nodes = [each.layer.node for each in self.planned if each.call is not None]
        self._storages = storages(self.graph, nodes, include_io=True, elsewhere=elsewhere)

    def _add_calls(self, nodes: Sequence[Node], layers: Mapping[Node, LayerContext], region: int) -> None:
        first = len(self.planned)
        for node in nodes:
            if not needs_no_code(node) and node not in self._streamed:
                call = len(self._moments_of_calls)
                self.planned.append(PlannedLayer(layers[node], [self.end], call, None, region))
                self._moments_of_calls.append(self.end)
                self.end += 1
        self.parts.append(range(first, len(self.planned)))

    def _add_stream(self, windows: RegionSchedule, region: int) -> None:
        start = self.end
        self.end += len(windows.operations)
        self.streams.append((windows, start, self.end))
        self.parts.append(windows)
        for band in band_layers(windows):
            times = [start + event for event in band.events]
            self.planned.append(PlannedLayer(band.band.layer, times, None, band, region))

    @property
    def layers(self) -> list[LayerContext]:
        """All layers, as kernels see them."""
        return [each.layer for each in self.planned]

    @cached_property
    def layer_by_form(self) -> Mapping[tuple[RowNode, Form], int]:
        """Index of the layer of each row node and form."""
        bands = ((index, each.band) for index, each in enumerate(self.planned))
        return {(band.node, band.form): index for index, band in bands if band is not None}

    def shift(self, value: Value) -> int:
        """Return the bytes of padding in front of resident values, in the storage of a value."""
        held = self._held_in.get(self._views[value].root, ())
        # Whole-tensor layers require the alignment for their tensors.
        return align(max((self._margins[each][0] * pitch(each) for each in held), default=0), self.alignment)

    @cached_property
    def _held_in(self) -> Mapping[Value, Sequence[Value]]:
        """Resident values of the regions, by the owner of their storage."""
        found: dict[Value, list[Value]] = {}
        for value in self._margins:
            found.setdefault(self._views[value].root, []).append(value)
        return found

    def place(self, value: Value) -> StoragePlace:
        """Return the storage owner of a resident value, and its offset, including padding."""
        place = self._views[value]
        return StoragePlace(place.root, place.offset + self.shift(value))

    def window_offset(self, value: Value) -> int:
        """Return the offset of a value's window in its block: padding may come before row 0."""
        if value not in self._margins:
            return 0
        return self.place(value).offset - self._margins[value][0] * pitch(value)

    def block_of(self, root: Value) -> StreamBlock | None:
        """Return the block of a value that owns storage in the arena and is resident, or None."""
        storage = self._storages.get(root)
        return self.blocks[storage] if storage is not None else None

    @cached_property
    def blocks(self) -> Mapping[Storage, StreamBlock]:
        """Blocks of resident storages."""
        held: dict[Value, list[tuple[Value, StreamBlock, int]]] = {}
        for windows, start, _ in self.streams:
            for value in windows.region.held:
                held.setdefault(self._views[value].root, []).append((value, windows.blocks[value], start))
        fronts = {value for region in self.regions for value in region.fronts}
        calls = [*self._moments_of_calls, self.end]
        made: dict[Storage, StreamBlock] = {}
        for root, storage in self._storages.items():
            if storage in made:
                continue
            own = [(each, start, self.window_offset(value)) for value, each, start in held.get(root, ())]
            first = [0 if storage.first < 0 else calls[storage.first]] if root not in fronts else []
            last = [calls[storage.last]] if storage.last >= 0 else []
            times = [*first, *last, *(t + start for each, start, _ in own for t in (each.first, each.last))]
            size = max([self.shift(root) + storage.size, *(place + each.size for each, _, place in own)])
            made[storage] = block(storage.label, size, span(min(times), max(times)))
        return made

    @cached_property
    def window_blocks(self) -> Mapping[Value, StreamBlock]:
        """Blocks of all windows; blocks of resident values with their complete lifetime."""
        found: dict[Value, StreamBlock] = {}
        for windows, start, _ in self.streams:
            for value, window in windows.blocks.items():
                if value in self._margins:
                    found[value] = self.blocks[self._storages[self._views[value].root]]
                else:
                    found[value] = block(window.label, window.size, window.times << start)
        return found

    @cached_property
    def newest_blocks(self) -> Mapping[Value, StreamBlock]:
        """Blocks for the newest rows: of rings, and stages."""
        return {
            value: block(each.label, each.size, each.times << start)
            for windows, start, _ in self.streams
            for value, each in windows.newest.items()
        }

    @cached_property
    def _tensors(self) -> list[StreamBlock]:
        """All blocks except scratch memory."""
        found = (*self.window_blocks.values(), *self.newest_blocks.values(), *self.blocks.values())
        return [*dict.fromkeys(found)]

    @cached_property
    def _occupied(self) -> Occupied:
        """Bytes in use of blocks that are not always in use completely."""
        found: dict[StreamBlock, list[UsedBytes]] = {}
        for windows, start, _ in self.streams:
            for value, held in windows.occupied.items():
                if value in self._margins and not self._is_alone(value):
                    continue  # other values in its storage may be in use
                own = found.setdefault(self.window_blocks[value], [])
                own.append(UsedBytes(held.moments + start, held.bytes + self.window_offset(value)))
        return {each: occupied_bytes(each, own, self.end + 1) for each, own in found.items()}

    def _is_alone(self, value: Value) -> bool:
        """Return whether a resident value occupies all of its storage alone."""
        root = self._views[value].root
        return root.type.nbytes == value.type.nbytes and len(self._held_in[root]) == 1

    @cached_property
    def _alive(self) -> NDArray[np.int64]:
        """Units in use at each moment, without scratch memory."""
        return held_at(self._tensors, self._occupied, self.end + 1)

    def held_apart(self, values: Collection[Value]) -> NDArray[np.int64]:
        """Return the units in use at each moment, without scratch memory and some resident values."""
        left = {self.window_blocks[value] for value in values}
        return held_at([each for each in self._tensors if each not in left], self._occupied, self.end + 1)

    def held_in_last_region(self, apart: Collection[Value]) -> int:
        """Return the maximum of `held_apart` over the events of the last region."""
        _, start, end = self.streams[-1]
        return int(self.held_apart(apart)[start:end].max())

    @cached_property
    def _alive_in(self) -> Sequence[int]:
        """Maximum number of units in use while each layer runs."""
        return [int(self._alive[[*each.moments]].max()) for each in self.planned]

    @cached_property
    def running(self) -> Sequence[int]:
        """Layer of each moment; if none runs, the next one."""
        layers = {moment: index for index, each in enumerate(self.planned) for moment in each.moments}
        found = [len(self.planned)]
        for moment in reversed(range(self.end)):
            found.append(layers.get(moment, found[-1]))
        return found[::-1]

    @cached_property
    def least_moved(self) -> int:
        """Bytes that are copied independent of the addresses: within windows."""
        return sum(op.size for windows, _, _ in self.streams for op in windows.slides if op.is_within)

    def moments_of(self, index: int) -> Sequence[int]:
        """Return the moments at which a layer runs."""
        return self.planned[index].moments

    def alive(self, index: int) -> int:
        """Return the units in use while a layer runs, without scratch memory."""
        return self._alive_in[index]

    @property
    def needs_most_behind(self) -> bool:
        """Whether the peak is in a call on whole tensors after the last region."""
        most = max(range(len(self.planned)), key=self.alive, default=0)
        planned = self.planned[most : most + 1]
        return any(each.call is not None and each.region == len(self.regions) - 1 for each in planned)


def _margins(regions: Sequence[StreamRegion]) -> dict[Value, tuple[int, int]]:
    """Return the rows above and below each resident value: the maximum over the regions."""
    found: dict[Value, tuple[int, int]] = {}
    for region in regions:
        for value in region.held:
            above, below = found.get(value, (0, 0))
            found[value] = max(above, region.above(value)), max(below, region.below(value))
    return found
