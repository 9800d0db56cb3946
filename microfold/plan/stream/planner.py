"""Where everything of a streamed model lies, given the kernels that compute it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.views import ALIGNMENT, StoragePlace, Views
from microfold.kernels.band import LayerBand
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.rows import Rows
from microfold.plan.arena import ArenaPlan, plan_within
from microfold.plan.check import check_plan
from microfold.plan.coarse import plan_coarsely
from microfold.plan.liveness import Storage, storages
from microfold.plan.memory import overlaps_of
from microfold.plan.overlap import Overlap
from microfold.plan.problem import units
from microfold.plan.stream.blocks import Block, alive_at, block, busiest, moments, shared_in_call, span
from microfold.plan.stream.check import Computing, check_stream
from microfold.plan.stream.operations import RowsCall
from microfold.plan.stream.region import Form, Region, RowNode, pitch
from microfold.plan.stream.windows import Windows, windows_of


@dataclass(frozen=True, eq=False)
class BandLayer:
    """A layer that computes rows of a node.

    Attributes:
        band: the first of these parts.
        events: in which it computes them.
    """

    node: RowNode
    form: Form
    band: LayerBand
    events: Sequence[int]


@dataclass(frozen=True)
class ComputedRows:
    """Rows of a value when a call has computed them.

    Attributes:
        layer: index of the layer.
        address: in the arena.
        size: bytes.
    """

    layer: int
    value: Value
    rows: Rows
    address: int
    size: int


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

    @property
    def windows(self) -> Mapping[Value, int]:
        """Where the windows of streamed values lie."""
        return {value: self.arena.offsets[b] for value, b in self.planner.window_blocks.items()}

    @property
    def fronts(self) -> Mapping[Value, int]:
        """Where row 0 lies of what the rest reads."""
        windows, front = self.windows, self.planner.windows.front
        return {value: windows[value] + front(value) for value in self.planner.region.fronts}

    @property
    def computed(self) -> Iterator[ComputedRows]:
        """All rows in the order in which they are computed."""
        windows = self.windows
        for call in self.planner.windows.all_operations:
            if isinstance(call, RowsCall):
                value, rows = call.node.output, call.node.written(call.part)
                address = windows[value] + call.output.offset
                size = (rows[1] - rows[0]) * pitch(value)
                yield ComputedRows(self.layer_of(call), value, rows, address, size)

    def layers_of(self, storage: Storage) -> tuple[int, int]:
        """The first and the last layer that run while storage is in use."""
        assert isinstance(storage, Block)
        running = [self.planner.running[moment] for moment in moments(storage.times)]
        return min(running), max(running)

    def layer_of(self, call: RowsCall) -> int:
        """Index of the layer that a call runs."""
        return self.planner.bands_by_form[call.node, call.node.forms[call.part]]

    def computing(self, kernels: Sequence[Kernel]) -> Callable[[RowsCall], Computing]:
        """What the checker has to know of calls, with kernels for all layers."""

        def of(call: RowsCall) -> Computing:
            index = self.layer_of(call)
            scratch = self.scratch.get(index)
            place = (self.arena.offsets[scratch], scratch.size) if scratch is not None else (0, 0)
            return Computing(self.planner.bands[index].band.layer, kernels[index], place)

        return of

    def check(self, kernels: Sequence[Kernel]) -> None:
        """Verify the stream, and the rest behind it, with checkers that know nothing of the planner.

        Raises:
            GraphError: the plan is wrong.
        """
        planner = self.planner
        computing = self.computing(kernels)
        check_stream(planner.windows.all_operations, self.windows, self.size, computing, self.fronts)
        count = len(planner.bands)
        scratch = [block for index, block in self.scratch.items() if index >= count]
        check_plan([*planner.blocks.values(), *scratch], self.arena, planner.alignment)


class StreamPlanner:
    """Plans a model of which the first part is streamed, for different kernels.

    Layers are the bands' first, then those of the rest.

    Args:
        layers: of the rest's calls, in order.
        elsewhere: values that own storage outside of the arena.
        alignment: of all that is in the arena, bytes.
    """

    def __init__(
        self,
        region: Region,
        layers: Sequence[LayerContext],
        elsewhere: Collection[Value] = (),
        alignment: int = ALIGNMENT,
    ):
        self.region = region
        self.alignment = alignment
        self.windows = windows_of(region)
        self.rest = list(layers)
        self.bands = _band_layers(self.windows)
        self.end = len(self.windows.operations)
        graph = region.graph
        self.graph: Graph = replace(graph, inputs=region.fronts, nodes=region.rest)
        self._views = Views(self.graph)
        nodes = [layer.node for layer in layers]
        self._storages = storages(self.graph, nodes, include_io=True, elsewhere=elsewhere)

    @property
    def layers(self) -> list[LayerContext]:
        """All of them."""
        return [*(band.band.layer for band in self.bands), *self.rest]

    @cached_property
    def bands_by_form(self) -> Mapping[tuple[RowNode, Form], int]:
        """Indices of the bands' layers."""
        return {(layer.node, layer.form): index for index, layer in enumerate(self.bands)}

    def place(self, value: Value) -> StoragePlace:
        """The place of a value of the rest: what owns its storage, and the bytes before it."""
        return self._views[value]

    def block_of(self, root: Value) -> Block | None:
        """The storage of a value of the rest that owns some in the arena."""
        storage = self._storages.get(root)
        return self.blocks[storage] if storage is not None else None

    @cached_property
    def blocks(self) -> Mapping[Storage, Block]:
        """The rest's storages as blocks, fronts among them."""
        made: dict[Storage, Block] = {}
        for storage in dict.fromkeys(self._storages.values()):
            times = span(max(storage.first, 0) + self.end, storage.last + self.end)
            made[storage] = block(storage.label, storage.size, times)
        for value in self.region.fronts:
            storage = self._storages[value]
            window = self.windows.blocks[value]
            made[storage] = block(window.label, window.size, window.times | made[storage].times)
        return made

    @cached_property
    def window_blocks(self) -> Mapping[Value, Block]:
        """The blocks of all windows, those of fronts with the rest's time."""
        fronts = {value: self.blocks[self._storages[value]] for value in self.region.fronts}
        return {**self.windows.blocks, **fronts}

    @cached_property
    def _tensors(self) -> list[Block]:
        """All blocks but scratch."""
        return [*dict.fromkeys((*self.window_blocks.values(), *self.blocks.values()))]

    @cached_property
    def _alive(self) -> list[int]:
        """Units in use at each moment, scratch aside."""
        return alive_at(self._tensors, self.end + len(self.rest) + 1)

    @cached_property
    def running(self) -> Sequence[int]:
        """The layer of each moment: of events in which none runs, the next one."""
        found: list[int] = [*range(len(self.bands), len(self.bands) + len(self.rest) + 1)]
        layers = {event: index for index, band in enumerate(self.bands) for event in band.events}
        for event in reversed(range(self.end)):
            found.insert(0, layers.get(event, found[0]))
        return found

    def moments_of(self, index: int) -> Sequence[int]:
        """When a layer runs."""
        if index < len(self.bands):
            return self.bands[index].events
        return [self.end + index - len(self.bands)]

    def alive(self, index: int) -> int:
        """Units in use while a layer runs, scratch aside."""
        return max(self._alive[moment] for moment in self.moments_of(index))

    def overlaps(self, index: int, kernel: Kernel) -> list[Overlap]:
        """Leave for what a layer computes to lie over what it reads last."""
        if index < len(self.bands):
            return self._overlaps_of_band(self.bands[index], kernel)
        call = index - len(self.bands)
        found = overlaps_of(call, self.rest[call], kernel, self._storages, self._views)
        fronts = {self._storages[value]: value for value in self.region.fronts}
        return [
            Overlap(
                self.blocks[o.source],
                self.blocks[o.target],
                # From the first row, which lies behind padding.
                o.distance - (self.windows.front(fronts[o.source]) if o.source in fronts else 0),
                o.exact,
            )
            for o in found
        ]

    def _overlaps_of_band(self, layer: BandLayer, kernel: Kernel) -> list[Overlap]:
        """Those that hold in every event in which the two windows meet."""
        node = layer.node
        if len(layer.events) != len(node.parts):
            return []  # bands of other forms may run further ahead
        target = self.window_blocks[node.output]
        found: list[Overlap] = []
        for index in node.readings:
            value = node.node.inputs[index]
            assert value is not None
            source = self.window_blocks[value]
            common = source.times & target.times
            reaches = dict(zip(self.windows.events[node], self.windows.reaches[node], strict=True))
            met = [*moments(common)]
            if node.node.operands.count(value) > 1 or any(
                moment not in reaches or not reaches[moment][index].free for moment in met
            ):
                continue
            offsets = {reaches[moment][index].offset for moment in met}
            if not offsets or index not in kernel.data_inputs(layer.band.layer):
                continue
            distance = kernel.overlap(layer.band.layer, index)
            if distance is not None:
                found.append(Overlap(source, target, distance - min(offsets)))
            elif len(offsets) == 1 and kernel.in_place(layer.band.layer, index):
                found.append(Overlap(source, target, -min(offsets), exact=True))
        return found

    def plan(
        self, kernels: Sequence[Kernel], calls: Sequence[KernelCall], wanted: int | None = None
    ) -> StreamMemory:
        """Where everything lies.

        Args:
            kernels, calls: those of all layers.
            wanted: bytes that are few enough, see `plan_arena`.
        """
        scratch: dict[int, Block] = {}
        for index, call in enumerate(calls):
            if call.scratch:
                times = sum(1 << moment for moment in self.moments_of(index))
                scratch[index] = block(f"scratch of layer {index}", call.scratch, times)
        blocks = [*self._tensors, *scratch.values()]
        overlaps = [o for index, kernel in enumerate(kernels) for o in self.overlaps(index, kernel)]
        arena = plan_coarsely(blocks, overlaps, self.alignment, wanted, self._place)
        return StreamMemory(self, scratch, arena)

    def _place(self, blocks: Sequence[Storage], overlaps: Sequence[Overlap], wanted: int | None) -> ArenaPlan:
        known = [each for each in blocks if isinstance(each, Block)]
        bound = busiest(known, overlaps, self.end + len(self.rest) + 1)
        return plan_within(blocks, overlaps, bound, wanted)

    def fits(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall], limit: int) -> bool:
        """Whether an arena with so many bytes is found."""
        return self.plan(kernels, calls, limit).size <= limit

    def least_need(self, kernels: Sequence[Kernel]) -> int:
        """Bytes that no arena for these kernels can go below, scratch aside."""
        needs = (
            self.alive(index) - shared_in_call(self.overlaps(index, kernel))
            for index, kernel in enumerate(kernels)
        )
        return max(needs, default=0) * ALIGNMENT

    def need(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Bytes of the smallest arena for what is alive in a layer's calls."""
        shared = shared_in_call(self.overlaps(index, kernel))
        return (self.alive(index) + units(call.scratch) - shared) * ALIGNMENT

    def need_in_any_order(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """The same: the order of a stream is given."""
        return self.need(index, kernel, call)

    def reordered(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> None:
        """There is no other order."""
        del kernels, calls


def _band_layers(windows: Windows) -> list[BandLayer]:
    """A layer for each form of each node's bands, in the order in which they first run."""
    found: dict[tuple[RowNode, Form], list[int]] = {}
    for node, events in windows.events.items():
        for form, event in zip(node.forms, events, strict=False):
            found.setdefault((node, form), []).append(event)
    return [BandLayer(node, form, node.bands[form], events) for (node, form), events in found.items()]
