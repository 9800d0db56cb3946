"""Where everything of a streamed model lies, given the kernels that compute it.

The nodes between regions are computed whole, as in models without rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.views import ALIGNMENT, StoragePlace, Views, needs_no_code
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.plan.arena import ArenaPlan, plan_within
from microfold.plan.coarse import plan_coarsely
from microfold.plan.liveness import Storage, storages
from microfold.plan.memory import overlaps_of
from microfold.plan.overlap import Overlap, align
from microfold.plan.problem import units
from microfold.plan.stream.blocks import (
    Block,
    Occupied,
    block,
    busiest,
    held_at,
    moments_of,
    shared_in_call,
    span,
)
from microfold.plan.stream.layers import BandLayer, ComputedRows, PlannedLayer, band_layers
from microfold.plan.stream.occupied import occupied_bytes, overlaps_in_time
from microfold.plan.stream.operations import RowsCall, Slide, Spot
from microfold.plan.stream.region import Form, Region, RowNode, pitch
from microfold.plan.stream.windows import Windows, windows_of


@dataclass(frozen=True, eq=False)
class StreamMemory:
    """What is in the arena, and where.

    Attributes:
        scratch: by the index of the layer.
    """

    planner: StreamPlanner
    scratch: Mapping[int, Block]
    arena: ArenaPlan

    @property
    def size(self) -> int:
        """Bytes of the arena."""
        return self.arena.size

    def need(self, index: int) -> int:
        """Bytes of an arena for what is alive during one call; with its scratch."""
        found = self.scratch.get(index)
        return (self.planner.alive(index) + (units(found.size) if found else 0)) * ALIGNMENT

    @cached_property
    def windows(self) -> Mapping[Value, int]:
        """Where the windows of streamed values lie, those of what is held whole among them."""
        planner, offsets = self.planner, self.arena.offsets
        return {v: offsets[b] + planner.window_offset(v) for v, b in planner.window_blocks.items()}

    @cached_property
    def newest(self) -> Mapping[Value, int]:
        """Where the newest rows of rings lie, and stages."""
        return {value: self.arena.offsets[b] for value, b in self.planner.newest_blocks.items()}

    @property
    def moved(self) -> int:
        """Bytes that move within windows, into rings, and between homes and stages elsewhere, in one run."""
        return sum(slide.size for slide in self._slides if self.way_of(slide) is not None)

    @property
    def _slides(self) -> Iterator[Slide]:
        return (op for part in self.planner.parts if isinstance(part, Windows) for op in part.slides)

    @property
    def copies_within(self) -> bool:
        """Whether rows move to lower addresses that may be among their own."""
        return any(self.way_of(slide) == "up" for slide in self._slides)

    def way_of(self, slide: Slide) -> str | None:
        """How rows move: `apart` from where they were, `up` or `down` over that; None: they are there."""
        distance = self.at(slide.source) - self.at(slide.target)
        if not distance:
            return None
        if abs(distance) >= slide.size and not slide.is_within:
            return "apart"
        return "up" if distance > 0 else "down"

    def at(self, spot: Spot) -> int:
        """The address of a spot."""
        return (self.newest if spot.newest else self.windows)[spot.value] + spot.offset

    def address(self, value: Value) -> int:
        """Where row 0 of a value lies that is held whole."""
        return self.arena.offsets[self.planner.window_blocks[value]] + self.planner.place(value).offset

    @property
    def computed(self) -> Iterator[ComputedRows | int]:
        """All results in the order in which they are computed: rows, or those of layers on whole tensors."""
        for part in self.planner.parts:
            if not isinstance(part, Windows):
                yield from part
                continue
            for call in part.all_operations:
                if isinstance(call, RowsCall):
                    value, rows = call.node.output, call.node.written(call.part)
                    address = self.at(call.output)
                    size = (rows[1] - rows[0]) * pitch(value)
                    yield ComputedRows(self.layer_of(call), value, rows, address, size)

    def layers_of(self, storage: Storage) -> tuple[int, int]:
        """The first and the last layer that run while storage is in use."""
        assert isinstance(storage, Block)
        running = [self.planner.running[moment] for moment in storage.moments]
        return min(running), max(running)

    def layer_of(self, call: RowsCall) -> int:
        """Index of the layer that a call runs."""
        return self.planner.layer_by_form[call.node, call.node.forms[call.part]]


class StreamPlanner:
    """Plans a model of which some parts are streamed, for different kernels.

    Layers are in the order in which they first run.

    Args:
        regions: of one graph, in its order.
        layers: of nodes that are computed whole.
        elsewhere: values that own storage outside of the arena.
        alignment: of all that is in the arena, bytes.
        windows: what happens in a region, as `windows_of` says; it may be remembered from other cuts.
    """

    makes_many_plans: ClassVar[bool] = False
    may_reorder: ClassVar[bool] = False

    def __init__(
        self,
        regions: Sequence[Region],
        layers: Mapping[Node, LayerContext],
        elsewhere: Collection[Value] = (),
        alignment: int = ALIGNMENT,
        windows: Callable[[Region, Mapping[Value, tuple[int, int]]], Windows] = windows_of,
    ):
        self.regions = regions
        self.alignment = alignment
        # Searches ask for the same of many kernels: what is found is kept.
        self._overlaps: dict[tuple[int, Kernel], Sequence[Overlap]] = {}
        self._shared: dict[tuple[int, Kernel], int] = {}
        self._scratch: dict[tuple[int, int], Block] = {}
        self._placed: dict[Hashable, ArenaPlan] = {}
        self.whole = regions[-1].graph
        views = Views(self.whole)
        taken = {value: rows for region in regions for value, rows in region.taken.items()}
        pushed = {views[rows.image].root for rows in taken.values()}
        fronts = {value: None for region in regions for value in region.fronts}
        streamed = {each.node for region in regions for each in region.nodes}
        # Columns of an input come with its rows: nothing computes them.
        streamed |= {node for node in self.whole.nodes if not taken.keys().isdisjoint(node.outputs)}
        self._streamed = streamed
        # The model as those see it that compute whole tensors.
        self.graph: Graph = replace(
            self.whole,
            inputs=(*(value for value in self.whole.inputs if value not in pushed), *fronts),
            nodes=tuple(node for node in self.whole.nodes if node not in streamed),
        )
        self._views = Views(self.graph)
        self._margins = _margins(regions)
        self.streams: list[tuple[Windows, int, int]] = []
        self.planned: list[PlannedLayer] = []
        self.parts: list[Windows | Sequence[int]] = []
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

    def _add_stream(self, windows: Windows, region: int) -> None:
        start = self.end
        self.end += len(windows.operations)
        self.streams.append((windows, start, self.end))
        self.parts.append(windows)
        for band in band_layers(windows):
            times = [start + event for event in band.events]
            self.planned.append(PlannedLayer(band.band.layer, times, None, band, region))

    @property
    def layers(self) -> list[LayerContext]:
        """What the kernels see of all layers."""
        return [each.layer for each in self.planned]

    @cached_property
    def layer_by_form(self) -> Mapping[tuple[RowNode, Form], int]:
        """Indices of the layers that compute rows."""
        bands = ((index, each.band) for index, each in enumerate(self.planned))
        return {(band.node, band.form): index for index, band in bands if band is not None}

    def shift(self, value: Value) -> int:
        """Bytes in front of what is held whole, in the storage that a value is in: its padding."""
        held = self._held_in.get(self._views[value].root, ())
        # What computes whole tensors finds them at multiples of the alignment.
        return align(max((self._margins[each][0] * pitch(each) for each in held), default=0), self.alignment)

    @cached_property
    def _held_in(self) -> Mapping[Value, Sequence[Value]]:
        """What regions read and compute whole, by what owns its storage."""
        found: dict[Value, list[Value]] = {}
        for value in self._margins:
            found.setdefault(self._views[value].root, []).append(value)
        return found

    def place(self, value: Value) -> StoragePlace:
        """The place of a value that is held whole: what owns its storage, and the bytes before it."""
        place = self._views[value]
        return StoragePlace(place.root, place.offset + self.shift(value))

    def window_offset(self, value: Value) -> int:
        """Where the window of a value begins in its block: in front of row 0 there may be padding."""
        if value not in self._margins:
            return 0
        return self.place(value).offset - self._margins[value][0] * pitch(value)

    def block_of(self, root: Value) -> Block | None:
        """The storage of a value that owns some in the arena, and is held whole."""
        storage = self._storages.get(root)
        return self.blocks[storage] if storage is not None else None

    @cached_property
    def blocks(self) -> Mapping[Storage, Block]:
        """The storages of what is held whole as blocks."""
        windows = [
            (value, windows.blocks[value], start)
            for windows, start, _ in self.streams
            for value in windows.region.held
        ]
        fronts = {value for region in self.regions for value in region.fronts}
        calls = [*self._moments_of_calls, self.end]
        made: dict[Storage, Block] = {}
        for root, storage in self._storages.items():
            if storage in made:
                continue
            own = [
                (each, start, self.window_offset(value))
                for value, each, start in windows
                if self._views[value].root is root
            ]
            first = [0 if storage.first < 0 else calls[storage.first]] if root not in fronts else []
            last = [calls[storage.last]] if storage.last >= 0 else []
            times = [*first, *last, *(t + start for each, start, _ in own for t in (each.first, each.last))]
            size = max([self.shift(root) + storage.size, *(place + each.size for each, _, place in own)])
            made[storage] = block(storage.label, size, span(min(times), max(times)))
        return made

    @cached_property
    def window_blocks(self) -> Mapping[Value, Block]:
        """The blocks of all windows, those of what is held whole with all their time."""
        found: dict[Value, Block] = {}
        for windows, start, _ in self.streams:
            for value, window in windows.blocks.items():
                if value in self._margins:
                    found[value] = self.blocks[self._storages[self._views[value].root]]
                else:
                    found[value] = block(window.label, window.size, window.times << start)
        return found

    @cached_property
    def newest_blocks(self) -> Mapping[Value, Block]:
        """Where the newest rows of rings lie, and stages."""
        return {
            value: block(each.label, each.size, each.times << start)
            for windows, start, _ in self.streams
            for value, each in windows.newest.items()
        }

    @cached_property
    def _tensors(self) -> list[Block]:
        """All blocks but scratch."""
        found = (*self.window_blocks.values(), *self.newest_blocks.values(), *self.blocks.values())
        return [*dict.fromkeys(found)]

    @cached_property
    def _occupied(self) -> Occupied:
        """What of the blocks holds something, where that is less than all."""
        found: dict[Block, dict[int, tuple[int, int]]] = {}
        for windows, start, _ in self.streams:
            for value, bytes_at in windows.occupied.items():
                if value in self._margins and not self._is_alone(value):
                    continue  # what else is in its storage may hold something
                own = found.setdefault(self.window_blocks[value], {})
                place = self.window_offset(value)
                own |= {start + t: (first + place, last + place) for t, (first, last) in bytes_at.items()}
        return {each: occupied_bytes(each, bytes_at, self.end + 1) for each, bytes_at in found.items()}

    def _is_alone(self, value: Value) -> bool:
        """Whether a value that is held whole is all of its storage, and nothing else in it is held."""
        root = self._views[value].root
        return root.type.nbytes == value.type.nbytes and len(self._held_in[root]) == 1

    @cached_property
    def _alive(self) -> NDArray[np.int64]:
        """Units in use at each moment, scratch aside."""
        return held_at(self._tensors, self._occupied, self.end + 1)

    @cached_property
    def _alive_in(self) -> Sequence[int]:
        """The most of them while each layer runs."""
        return [int(self._alive[[*each.moments]].max()) for each in self.planned]

    @cached_property
    def running(self) -> Sequence[int]:
        """The layer of each moment: of those in which none runs, the next one."""
        layers = {moment: index for index, each in enumerate(self.planned) for moment in each.moments}
        found = [len(self.planned)]
        for moment in reversed(range(self.end)):
            found.append(layers.get(moment, found[-1]))
        return found[::-1]

    def moments_of(self, index: int) -> Sequence[int]:
        """When a layer runs."""
        return self.planned[index].moments

    def alive(self, index: int) -> int:
        """Units in use while a layer runs, scratch aside."""
        return self._alive_in[index]

    @property
    def needs_most_behind(self) -> bool:
        """Most is alive in a call behind the last region, on whole tensors."""
        most = max(range(len(self.planned)), key=self.alive, default=0)
        planned = self.planned[most : most + 1]
        return any(each.call is not None and each.region == len(self.regions) - 1 for each in planned)

    def overlaps(self, index: int, kernel: Kernel) -> Sequence[Overlap]:
        """Leave for what a layer computes to lie over what it reads last."""
        key = index, kernel
        if key not in self._overlaps:
            self._overlaps[key] = self._overlaps_of(index, kernel)
        return self._overlaps[key]

    def _overlaps_of(self, index: int, kernel: Kernel) -> Sequence[Overlap]:
        planned = self.planned[index]
        if planned.band is not None:
            return self._overlaps_of_band(planned.band, planned.region, kernel)
        assert planned.call is not None
        found = overlaps_of(planned.call, planned.layer, kernel, self._storages, self._views)
        shifts = {self._storages[root]: self.shift(root) for root in self._held_in}
        made: list[Overlap] = []
        for each in found:
            source, target = self.blocks[each.source], self.blocks[each.target]
            if source.last != self.moments_of(index)[0] or target.first != source.last:
                continue
            # From the first row, which lies behind padding.
            distance = each.distance + shifts.get(each.target, 0) - shifts.get(each.source, 0)
            made.append(Overlap(source, target, distance, each.exact))
        return made

    def _overlaps_of_band(self, layer: BandLayer, region: int, kernel: Kernel) -> list[Overlap]:
        """Those that hold in every event in which the two windows meet, if this kernel is in all of them."""
        node = layer.node
        windows, start, _ = self.streams[region]
        target = self.newest_blocks.get(node.output) or self.window_blocks[node.output]
        read = [self.window_blocks.get(value) for value in node.node.operands]
        found: list[Overlap] = []
        for index in node.readings:
            value = node.node.inputs[index]
            assert value is not None
            if value in self.newest_blocks:
                continue
            source = self.window_blocks[value]
            common = source.times & target.times
            events = (start + event for event in windows.events[node])
            reaches = dict(zip(events, windows.reaches[node], strict=True))
            met = moments_of(common).tolist()
            # As in models without rows, storage that is read twice is left alone.
            if read.count(source) > 1 or any(
                moment not in reaches or not reaches[moment][index].free for moment in met
            ):
                continue
            # Windows of what is held whole need not begin where their blocks do.
            places = {self.window_offset(value) + reaches[moment][index].offset for moment in met}
            if not places or index not in kernel.data_inputs(layer.band.layer):
                continue
            distance = kernel.overlap(layer.band.layer, index)
            if distance is not None:
                found.append(Overlap(source, target, distance - min(places)))
            elif len(places) == 1 and kernel.in_place(layer.band.layer, index):
                place = min(places)
                # Leave that alignment rules out would only stand in the way of other leave.
                if place % self.alignment == 0:
                    found.append(Overlap(source, target, -place, exact=True))
        return found

    def _all_overlaps(self, kernels: Sequence[Kernel]) -> Iterator[Overlap]:
        """Those of all layers; of layers that compute rows of the same node, those that all of them leave."""
        by_node: dict[Hashable, list[Sequence[Overlap]]] = {}
        for index, kernel in enumerate(kernels):
            band = self.planned[index].band
            by_node.setdefault(index if band is None else band.node, []).append(self.overlaps(index, kernel))
        for own in by_node.values():
            yield from own[0] if len(own) == 1 else _common(own)

    @cached_property
    def _homes_and_stages(self) -> Sequence[Overlap]:
        """Leave for carried rows to lie anywhere over where they go: they move all at once."""
        found: list[Overlap] = []
        for region in self.regions:
            for value in region.carried:
                home, stage = self.window_blocks[value], self.newest_blocks[value]
                found.append(Overlap(home, stage, -align(home.size, self.alignment)))
        return found

    def plan(
        self,
        kernels: Sequence[Kernel],
        calls: Sequence[KernelCall],
        wanted: int | None = None,
        *,
        thorough: bool = False,
    ) -> StreamMemory:
        """Where everything lies.

        Args:
            kernels, calls: those of all layers.
            wanted, thorough: bytes that are few enough, and how long to search; see `plan_within`.
        """
        scratch = {i: self._scratch_of(i, call.scratch) for i, call in enumerate(calls) if call.scratch}
        overlaps = [*self._all_overlaps(kernels), *self._homes_and_stages]
        problem = (*scratch.values(),), (*overlaps,)
        for searched in ((None, thorough), (wanted, thorough)):
            if (problem, searched) in self._placed:
                return StreamMemory(self, scratch, self._placed[problem, searched])
        arena = self._place([*scratch.values()], overlaps, wanted, thorough)
        self._placed[problem, (wanted, thorough)] = arena
        return StreamMemory(self, scratch, arena)

    def _scratch_of(self, index: int, size: int) -> Block:
        """The scratch of a layer's calls."""
        if (index, size) not in self._scratch:
            times = sum(1 << moment for moment in self.moments_of(index))
            self._scratch[index, size] = block(f"scratch of layer {index}", size, times)
        return self._scratch[index, size]

    def _place(
        self, scratch: Sequence[Block], overlaps: Sequence[Overlap], wanted: int | None, thorough: bool
    ) -> ArenaPlan:
        blocks = [*self._tensors, *scratch]
        allowed = [*overlaps, *overlaps_in_time(blocks, self._occupied, overlaps)]
        least = busiest(blocks, self._occupied, overlaps, self.end + 1)
        bound = align(least, self.alignment) // self.alignment * ALIGNMENT

        def place(coarse: Sequence[Storage], leave: Sequence[Overlap], enough: int | None) -> ArenaPlan:
            return plan_within(coarse, leave, bound, enough, thorough=thorough)

        return plan_coarsely(blocks, allowed, self.alignment, wanted, place)

    def fits(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall], limit: int) -> bool:
        """Whether an arena with so many bytes is found."""
        return self.plan(kernels, calls, limit).size <= limit

    def least_need(self, kernels: Sequence[Kernel]) -> int:
        """Bytes that no arena for these kernels can go below, scratch aside."""
        needs = (self.alive(index) - self._shared_by(index, kernel) for index, kernel in enumerate(kernels))
        return max(needs, default=0) * ALIGNMENT

    def _shared_by(self, index: int, kernel: Kernel) -> int:
        """Units that what a layer computes may share with what it reads."""
        key = index, kernel
        if key not in self._shared:
            self._shared[key] = shared_in_call(self.overlaps(index, kernel))
        return self._shared[key]

    def need(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Bytes of the smallest arena for what is alive in a layer's calls."""
        shared = self._shared_by(index, kernel)
        return (self.alive(index) + units(call.scratch) - shared) * ALIGNMENT

    def need_in_any_order(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """The same: the order of a stream is given."""
        return self.need(index, kernel, call)

    def reordered(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> None:
        """There is no other order."""
        del kernels, calls


def _common(found: Sequence[Sequence[Overlap]]) -> Iterator[Overlap]:
    """What all of some layers leave."""
    pairs = dict.fromkeys((each.source, each.target) for own in found for each in own)
    for source, target in pairs:
        each = [o for own in found for o in own if (o.source, o.target) == (source, target)]
        if len(each) < len(found):
            continue
        distance = max(o.distance for o in each)
        exact = {o.distance for o in each if o.exact}
        if not exact or exact == {distance}:
            yield Overlap(source, target, distance, exact=bool(exact))


def _margins(regions: Sequence[Region]) -> dict[Value, tuple[int, int]]:
    """Rows above and below what is held whole: the most that a region needs."""
    found: dict[Value, tuple[int, int]] = {}
    for region in regions:
        for value in region.held:
            above, below = found.get(value, (0, 0))
            found[value] = max(above, region.above(value)), max(below, region.below(value))
    return found
