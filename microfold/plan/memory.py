"""Memory plan of a graph: addresses of tensors and scratch memory, given the kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct, field

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.views import ALIGNMENT, Views
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import overlap_of
from microfold.plan.arena import ArenaPlan, plan_arena
from microfold.plan.bound import call_needs
from microfold.plan.coarse import plan_coarsely
from microfold.plan.liveness import Storage, storages
from microfold.plan.overlap import Overlap, OverlapPermission


class MemoryPlan(Struct, frozen=True):
    """Content of the arena, with addresses.

    Attributes:
        owners: storage of every value in the arena.
        scratch: scratch storage of the calls that need some, by call index.
        fetched: buffers into which constants of calls are copied before the call, by call index.
        overlaps: overlaps that the kernels allow.
        calls: number of calls.
    """

    owners: Mapping[Value, Storage]
    scratch: Mapping[int, Storage]
    overlaps: list[Overlap]
    arena: ArenaPlan
    calls: int
    fetched: Mapping[int, Storage] = field(default_factory=dict[int, Storage])

    @property
    def size(self) -> int:
        """Size of the arena, in bytes."""
        return self.arena.size

    @property
    def blocks(self) -> list[Storage]:
        """All storages in the arena."""
        return [*dict.fromkeys(self.owners.values()), *self.scratch.values(), *self.fetched.values()]

    @property
    def needs(self) -> list[int]:
        """Minimum arena size for the storages alive during each call, in bytes."""
        return call_needs(self.blocks, self.overlaps, self.calls)


def plan_memory(
    graph: Graph,
    kernels: Sequence[tuple[LayerContext, Kernel]],
    calls: Sequence[KernelCall],
    *,
    include_io: bool,
    elsewhere: Collection[Value] = (),
    alignment: int = ALIGNMENT,
    fetched: Mapping[int, int] | None = None,
) -> MemoryPlan:
    """Plan the arena.

    Args:
        kernels: layer and kernel of all computing nodes, in order.
        calls: kernel calls.
        include_io: whether the graph's inputs and outputs are in the arena.
        elsewhere: values that own storage outside of the arena.
        alignment: alignment of all storages, in bytes.
        fetched: bytes of constants that are copied into the arena while the previous call runs, by the index
            of the call that reads them.
    """
    nodes = [layer.node for layer, _ in kernels]
    owners = storages(graph, nodes, include_io=include_io, elsewhere=elsewhere)
    overlaps = overlaps_of_all(kernels, owners, Views(graph))
    return place(owners, overlaps, calls, alignment=alignment, fetched=fetched)


def place(
    owners: Mapping[Value, Storage],
    overlaps: list[Overlap],
    calls: Sequence[KernelCall],
    *,
    alignment: int,
    fetched: Mapping[int, int] | None = None,
) -> MemoryPlan:
    """Plan the arena as `plan_memory` does, given the storages of all values and the allowed overlaps."""
    scratch = {
        index: Storage(f"scratch of call {index}", call.scratch, index, index)
        for index, call in enumerate(calls)
        if call.scratch
    }
    buffers = {
        index: Storage(f"constants of call {index}", size, max(index - 1, 0), index)
        for index, size in (fetched or {}).items()
    }
    blocks = [*dict.fromkeys(owners.values()), *scratch.values(), *buffers.values()]
    arena = plan_coarsely(blocks, overlaps, alignment, None, plan_arena)
    return MemoryPlan(owners, scratch, overlaps, arena, len(calls), buffers)


def overlaps_of_all(
    kernels: Sequence[tuple[LayerContext, Kernel]], owners: Mapping[Value, Storage], views: Views
) -> list[Overlap]:
    """Return the overlaps that the kernels of all calls allow, in the order of the calls."""
    return [
        overlap
        for index, (layer, kernel) in enumerate(kernels)
        for overlap in overlaps_of(index, layer, kernel, owners, views)
    ]


def overlaps_of(
    index: int, layer: LayerContext, kernel: Kernel, owners: Mapping[Value, Storage], views: Views
) -> list[Overlap]:
    """Return the overlaps of outputs with inputs that die in this call, as its kernel allows them."""
    target = owners.get(layer.node.outputs[0])
    # Storage with other parts that were computed before must not overlap anything.
    if target is None or target.first != index:
        return []
    found = [
        Overlap(permission.source, target, permission.distance, permission.exact)
        for permission in permissions_of(layer, kernel, owners, views)
        if permission.source.last == index
    ]
    return [*found, *_replaced(layer, kernel, index, owners, views)]


def permissions_of(
    layer: LayerContext, kernel: Kernel, owners: Mapping[Value, Storage], views: Views
) -> list[OverlapPermission]:
    """Return the inputs that the first output may overlap according to a kernel, if they die in the call."""
    found: list[OverlapPermission] = []
    output = layer.node.outputs[0]
    data = kernel.data_inputs(layer)
    values = [layer.node.arguments[i] for i in data]
    sources = [owners.get(value) if value is not None else None for value in values]
    for position, value, source in zip(data, values, sources, strict=True):
        # If a storage is read twice, an overlap would have to satisfy both reads.
        if value is None or source is None or sources.count(source) > 1:
            continue
        # Kernels state distances between values; the planner needs distances between storages.
        shift = views[output].offset - views[value].offset
        distance = overlap_of(kernel, layer, position)
        if distance is not None:
            found.append(OverlapPermission(source, distance + shift, exact=False))
        elif kernel.in_place(layer, position):
            found.append(OverlapPermission(source, shift, exact=True))
    return found


def _replaced(
    layer: LayerContext, kernel: Kernel, index: int, owners: Mapping[Value, Storage], views: Views
) -> Iterator[Overlap]:
    """Yield overlaps of outputs that start as copies of inputs, and may be at the same address."""
    node = layer.node
    read = [owners.get(value) for value in node.operands]
    for position, which in kernel.replaces(layer):
        value, output = node.inputs[position], node.outputs[which]
        source, target = owners.get(value) if value is not None else None, owners.get(output)
        if value is None or source is None or target is None:
            continue
        if target.first == index == source.last and read.count(source) == 1:
            shift = views[output].offset - views[value].offset
            yield Overlap(source, target, shift, exact=True)
