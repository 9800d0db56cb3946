"""Where the tensors and scratch of a graph lie, given the kernels that compute it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field

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
from microfold.plan.overlap import Leave, Overlap
from microfold.support.frozen import frozen


@frozen
class Memory:
    """What is in the arena, and where.

    Attributes:
        owners: the storage of every value in the arena.
        scratch: that of calls which need it, by index.
        fetched: where constants of calls are copied to before, by index.
        overlaps: that the kernels allow.
        calls: how many there are.
    """

    owners: Mapping[Value, Storage]
    scratch: Mapping[int, Storage]
    overlaps: list[Overlap]
    arena: ArenaPlan
    calls: int
    fetched: Mapping[int, Storage] = field(default_factory=dict[int, Storage])

    @property
    def size(self) -> int:
        """Bytes of the arena."""
        return self.arena.size

    @property
    def blocks(self) -> list[Storage]:
        """All storages."""
        return [*dict.fromkeys(self.owners.values()), *self.scratch.values(), *self.fetched.values()]

    @property
    def needs(self) -> list[int]:
        """Bytes of the smallest arena for what is alive during each call."""
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
) -> Memory:
    """The arena.

    Args:
        kernels: of all computing nodes, in order.
        calls: of the kernels.
        include_io: whether the graph's inputs and outputs are in it.
        elsewhere: values that own storage outside of it.
        alignment: of all storages, bytes.
        fetched: bytes of constants that are copied into the arena while the call before runs, by the index of
            the call that reads them.
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
) -> Memory:
    """`plan_memory` where it is known which values share storage, and what kernels let lie over what."""
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
    return Memory(owners, scratch, overlaps, arena, len(calls), buffers)


def overlaps_of_all(
    kernels: Sequence[tuple[LayerContext, Kernel]], owners: Mapping[Value, Storage], views: Views
) -> list[Overlap]:
    """What the kernels of all calls, in order, let lie over what."""
    return [
        overlap
        for index, (layer, kernel) in enumerate(kernels)
        for overlap in overlaps_of(index, layer, kernel, owners, views)
    ]


def overlaps_of(
    index: int, layer: LayerContext, kernel: Kernel, owners: Mapping[Value, Storage], views: Views
) -> list[Overlap]:
    """Inputs that die in a call, and that its kernel lets the output lie over."""
    target = owners.get(layer.node.outputs[0])
    # Storage with other parts, computed before, must not lie over anything.
    if target is None or target.first != index:
        return []
    found = [
        Overlap(leave.source, target, leave.distance, leave.exact)
        for leave in leave_of(layer, kernel, owners, views)
        if leave.source.last == index
    ]
    return [*found, *_replaced(layer, kernel, index, owners, views)]


def leave_of(
    layer: LayerContext, kernel: Kernel, owners: Mapping[Value, Storage], views: Views
) -> list[Leave]:
    """Inputs that a kernel lets the first output lie over, should they die."""
    found: list[Leave] = []
    output = layer.node.outputs[0]
    data = kernel.data_inputs(layer)
    values = [layer.node.arguments[i] for i in data]
    sources = [owners.get(value) if value is not None else None for value in values]
    for position, value, source in zip(data, values, sources, strict=True):
        # Storage that is read twice would have to satisfy both reads.
        if value is None or source is None or sources.count(source) > 1:
            continue
        # Kernels speak of values, the planner of storages.
        shift = views[output].offset - views[value].offset
        distance = overlap_of(kernel, layer, position)
        if distance is not None:
            found.append(Leave(source, distance + shift, exact=False))
        elif kernel.in_place(layer, position):
            found.append(Leave(source, shift, exact=True))
    return found


def _replaced(
    layer: LayerContext, kernel: Kernel, index: int, owners: Mapping[Value, Storage], views: Views
) -> Iterator[Overlap]:
    """Outputs of a call that begin as its inputs, and may lie where these do."""
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
