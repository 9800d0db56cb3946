"""Liveness analysis: lifetimes of storages, in calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.in_place import updated_states
from microfold.ir.node import Node, Value
from microfold.ir.views import Views, needs_no_code


class Storage(Struct, frozen=True, eq=False):
    """Bytes that one or more values share (a value and its views).

    Attributes:
        label: name of the value that is stored first.
        size: size in bytes.
        first, last: indices of the first and last call during which the bytes are alive.
    """

    label: str
    size: int
    first: int
    last: int

    def lives_with(self, other: Storage) -> bool:
        return self.first <= other.last and other.first <= self.last

    def dies_for(self, other: Storage) -> bool:
        """Return whether it is last read in the call that computes the other one, which may overlap it."""
        return self.last == other.first


def computing_nodes(graph: Graph) -> list[Node]:
    """Return the nodes that need a call, in order."""
    return [node for node in graph.nodes if not needs_no_code(node)]


def storages(
    graph: Graph, calls: Sequence[Node], *, include_io: bool, elsewhere: Collection[Value] = ()
) -> dict[Value, Storage]:
    """Return the arena storage of every value that needs some, including views.

    Constants and states have separate storage. The next value of a state is also there if it is computed in
    place (`updated_states`). Inputs are alive from before the first call, outputs and next states until after
    the last one.

    Args:
        calls: computing nodes in scheduled order.
        include_io: whether the graph's inputs and outputs are also in the arena.
        elsewhere: values that own storage outside of the arena.
    """
    views = Views(graph)
    end = len(calls)
    outside = set(graph.constants) | {state.value for state in graph.state} | set(elsewhere)
    outside |= set(updated_states(graph))
    if not include_io:
        outside |= set(graph.inputs) | {views[v].root for v in graph.outputs}
    first: dict[Value, int] = dict.fromkeys(graph.inputs, -1)
    last: dict[Value, int] = {}
    for index, node in enumerate(calls):
        for value in node.outputs:
            first.setdefault(views[value].root, index)
        for value in (*node.outputs, *node.operands):
            last[views[value].root] = index
    for value in (*graph.outputs, *(state.next for state in graph.state)):
        last[views[value].root] = end
    owners: dict[Value, Storage] = {
        value: Storage(value.name, value.type.nbytes, begin, max(begin, last.get(value, begin)))
        for value, begin in first.items()
        if value not in outside
    }
    values = (value for node in graph.nodes for value in node.outputs)
    return owners | {value: owners[views[value].root] for value in values if views[value].root in owners}


def living_together(blocks: Sequence[Storage]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of storages that are alive at the same time, as indices. The older one comes first."""
    there: list[int] = []
    for index in sorted(range(len(blocks)), key=lambda i: blocks[i].first):
        block = blocks[index]
        there = [other for other in there if blocks[other].last >= block.first]
        yield from ((other, index) for other in there if block.lives_with(blocks[other]))
        there.append(index)


def alive(blocks: Sequence[Storage], size: Callable[[Storage], int]) -> dict[int, int]:
    """Return the total size alive at each moment at which a storage begins, in order of time."""
    changes = sorted([(b.first, 0, size(b)) for b in blocks] + [(b.last, 1, -size(b)) for b in blocks])
    held: dict[int, int] = {}
    total = 0
    for moment, leaves, change in changes:
        total += change
        if not leaves:
            held[moment] = total
    return held


def alive_during(blocks: Iterable[Storage], calls: int, size: Callable[[Storage], int]) -> list[int]:
    """Return the total size that is alive during each call, from call 0 on."""
    changes = [0] * (calls + 1)
    for block in blocks:
        changes[min(max(block.first, 0), calls)] += size(block)
        changes[min(max(block.last + 1, 0), calls)] -= size(block)
    return [*accumulate(changes[:calls])]


class LiveBytes(NamedTuple):
    """Bytes of storage alive during each call, and bytes alive both before and during it."""

    during: Sequence[int]
    before: Sequence[int]


def alive_between(blocks: Iterable[Storage], calls: int) -> LiveBytes:
    """Return the bytes that storages hold during each call and before it, without overlaps."""
    held, born = [*blocks], Counter[int]()
    for block in held:
        born[block.first] += block.size
    during = alive_during(held, calls + 1, lambda block: block.size)
    return LiveBytes(during, [size - born[call] for call, size in enumerate(during)])
