"""The kernels for the least flash whose arena is not larger than that of the fastest ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from microfold.ir.graph import Graph
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.least_flash import Option, layer_options, select_smallest
from microfold.plan.memory import Memory, plan_memory

# What a layer may be computed by, by its index.
_Options = dict[int, list[Option]]


@dataclass(frozen=True)
class _Choice:
    """Options that are left, the ones chosen from them, and the memory that these need."""

    options: _Options
    chosen: dict[int, Option]
    memory: Memory

    @property
    def arena(self) -> int:
        return self.memory.arena.size


def smallest_kernels(
    graph: Graph, fastest: Sequence[tuple[LayerContext, Kernel]], free: Sequence[bool], *, include_io: bool
) -> list[tuple[LayerContext, Kernel]]:
    """See `select_smallest`.

    As long as the arena is larger than with the fastest kernels, a layer is denied its choice.

    Args:
        fastest: the kernels to begin with, of all computing nodes, in order.
        free: for each whether another one may take its place.
        include_io: whether the graph's inputs and outputs are in the arena.
    """
    calls = [kernel.lower(layer) for layer, kernel in fastest]
    limit = plan_memory(graph, fastest, calls, include_io=include_io).arena.size

    def kernels(chosen: dict[int, Option]) -> list[tuple[LayerContext, Kernel]]:
        return [(layer, chosen[i].kernel if i in chosen else k) for i, (layer, k) in enumerate(fastest)]

    def choose(options: _Options) -> _Choice:
        chosen = dict(zip(options, select_smallest([*options.values()]), strict=True))
        lowered = [chosen[i].call if i in chosen else call for i, call in enumerate(calls)]
        return _Choice(options, chosen, plan_memory(graph, kernels(chosen), lowered, include_io=include_io))

    choice = choose({i: layer_options(layer) for i, (layer, _) in enumerate(fastest) if free[i]})
    while choice.arena > limit:
        changed = [i for i, option in choice.chosen.items() if option.kernel is not fastest[i][1]]
        guilty = [i for i in changed if choice.memory.need(i) > limit]
        if guilty:
            choice = choose(_without(choice, guilty))
        elif changed:
            # Several layers together: the one whose other choice helps most.
            choice = min((choose(_without(choice, [i])) for i in changed), key=lambda c: c.arena)
        else:
            break
    return kernels(choice.chosen)


def _without(choice: _Choice, layers: Sequence[int]) -> _Options:
    """The options without those that these layers have chosen."""
    return {
        i: [o for o in options if i not in layers or o is not choice.chosen[i]]
        for i, options in choice.options.items()
    }
