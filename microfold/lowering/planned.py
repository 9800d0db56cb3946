"""Third stage of a build: calls in their order, with the addresses of all tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from microfold.errors import InputError
from microfold.kernels.call import KernelCall
from microfold.kernels.selection.candidates import Candidate, LayerCandidates
from microfold.lowering.scope import LoweringScope, ScopeMemory
from microfold.plan.memory import plan_memory
from microfold.plan.parts import check_parts, plan_parts

if TYPE_CHECKING:
    from microfold.lowering.optimised import OptimisedModel


class PlannedCalls(Struct, frozen=True):
    """Calls of a model in their order.

    Attributes:
        order: order of the calls, as indices into the rankings of the model.
        scope: scope of the graph with its nodes in this order.
    """

    order: Sequence[int]
    scope: LoweringScope
    memory: ScopeMemory


def planned_with(
    fetched: Mapping[int, int],
    planned: PlannedCalls,
    model: OptimisedModel,
    chosen: Sequence[Candidate],
    calls: Sequence[KernelCall],
) -> PlannedCalls:
    """Return a plan with room for constants that are copied into the arena, see `plan_memory`.

    Args:
        fetched: bytes by layer index.
        planned: plan without that room.
        chosen, calls: kernels and calls of all layers, in the graph's order.
    """
    order, scope = planned.order, planned.scope
    memory = plan_memory(
        scope.graph,
        [(model.rankings[index].layer, chosen[index].kernel) for index in order],
        [calls[index] for index in order],
        include_io=model.selected.io_in_arena,
        alignment=model.options.align,
        fetched=fetched,
    )
    return PlannedCalls(order, scope, ScopeMemory(memory, {}, {}))


def plan_in_parts(
    planned: PlannedCalls, model: OptimisedModel, chosen: Sequence[Candidate], allowed: int | None = None
) -> tuple[PlannedCalls, tuple[int, ...]]:
    """Return a plan with the arena in the memories of the target, and the bytes of its parts.

    Args:
        chosen: kernel of each layer, in the graph's order.
        allowed: limit of the bytes of all parts, if a plan can keep it; None: no limit.

    Raises:
        InputError: the target has no memories for parts, or layers run others.
    """
    memories = [memory for memory in model.target.memories if "data" in memory.use]
    if len(memories) < 2:
        raise InputError(
            "memory=parts requires a target with several memories for data; "
            f"{model.target.name} has {len(memories)}: use memory=split, or describe them in a .toml"
        )
    if planned.scope.inner:
        raise InputError("memory=parts does not support loops and conditions: use memory=split")
    memories.sort(key=lambda memory: memory.cycles)
    own = planned.memory.own
    accesses = dict.fromkeys(own.blocks, 0)
    for position, index in enumerate(planned.order):
        node, macs = model.rankings[index].layer.node, _macs(chosen[index], model.rankings[index])
        for value in (*node.operands, *node.outputs):
            if value in own.owners:
                products = macs if value in node.operands[:1] else 0
                accesses[own.owners[value]] += value.type.size + products
        for block in (own.scratch.get(position), own.fetched.get(position)):
            if block is not None:
                accesses[block] += macs + block.size
    rooms = [memory.size for memory in memories]
    plan = plan_parts(own.blocks, own.overlaps, accesses, rooms, model.options.align, own.arena, allowed)
    check_parts(own.blocks, plan)
    memory = replace(planned.memory, own=replace(own, arena=plan.arena))
    return replace(planned, memory=memory), plan.sizes


def _macs(chosen: Candidate, ranking: LayerCandidates) -> int:
    """Return the multiply-accumulates of a layer."""
    return sum(node.macs() for node in chosen.kernel.work(ranking.layer))
