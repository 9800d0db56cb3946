"""Where the tensors and scratch of a graph lie, given the kernels that compute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.views import Views
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.plan.arena import ArenaPlan, plan_arena
from microfold.plan.liveness import Storage, storages
from microfold.plan.overlap import Overlap


@dataclass(frozen=True)
class Memory:
    """What is in the arena, and where.

    Attributes:
        owners: the storage of every value in the arena.
        scratch: that of calls which need it, by index.
        overlaps: that the kernels allow.
    """

    owners: Mapping[Value, Storage]
    scratch: Mapping[int, Storage]
    overlaps: list[Overlap]
    arena: ArenaPlan

    @property
    def size(self) -> int:
        """Bytes of the arena."""
        return self.arena.size

    @property
    def blocks(self) -> list[Storage]:
        """All storages."""
        return [*dict.fromkeys(self.owners.values()), *self.scratch.values()]

    def need(self, index: int) -> int:
        """Bytes of an arena for what is alive during one call."""
        return plan_arena([b for b in self.blocks if b.first <= index <= b.last], self.overlaps).size


def plan_memory(
    graph: Graph,
    kernels: Sequence[tuple[LayerContext, Kernel]],
    calls: Sequence[KernelCall],
    *,
    include_io: bool,
) -> Memory:
    """The arena.

    Args:
        kernels: of all computing nodes, in order.
        calls: of the kernels.
        include_io: whether the graph's inputs and outputs are in it.
    """
    owners = storages(graph, [layer.node for layer, _ in kernels], include_io=include_io)
    scratch = {
        index: Storage(f"scratch of call {index}", call.scratch, index, index)
        for index, call in enumerate(calls)
        if call.scratch
    }
    blocks = [*dict.fromkeys(owners.values()), *scratch.values()]
    overlaps = _overlaps(kernels, owners, Views(graph))
    return Memory(owners, scratch, overlaps, plan_arena(blocks, overlaps))


def _overlaps(
    kernels: Sequence[tuple[LayerContext, Kernel]], owners: Mapping[Value, Storage], views: Views
) -> list[Overlap]:
    """Inputs that die in a call, and that its kernel lets the output lie over."""
    found: list[Overlap] = []
    for index, (layer, kernel) in enumerate(kernels):
        output = layer.node.outputs[0]
        target = owners.get(output)
        # Storage with other parts, computed before, must not lie over anything.
        if target is None or target.first != index:
            continue
        data = kernel.data_inputs(layer)
        values = [layer.node.inputs[i] for i in data]
        sources = [owners.get(value) if value is not None else None for value in values]
        for position, value, source in zip(data, values, sources, strict=True):
            # Storage that is read twice would have to satisfy both reads.
            if value is None or source is None or source.last != index or sources.count(source) > 1:
                continue
            # Kernels speak of values, the planner of storages.
            shift = views[output].offset - views[value].offset
            distance = kernel.overlap(layer, position)
            if distance is not None:
                found.append(Overlap(source, target, distance + shift))
            elif kernel.in_place(layer, position):
                found.append(Overlap(source, target, shift, exact=True))
    return found
