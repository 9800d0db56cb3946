"""The smallest arena of whole tensors by a solver of integer programs, for kernels and orders at once.

Of microfold it takes what kernels say of a call: bytes of scratch, and how the output may lie over an input.
Lifetimes, orders and places are its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import highspy
from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import kernels_for

UNIT = 8  # bytes: offsets are multiples of it


class Way(Struct, frozen=True):
    """What a variant of a kernel asks of the arena.

    Attributes:
        scratch: units.
        over: inputs over which the output may lie: the value, by how many units at least the input begins
            behind it, and whether only that will do.
    """

    scratch: int
    over: frozenset[tuple[Value, int, bool]]


def _units(size: int) -> int:
    return -(-size // UNIT)


def ways(layer: LayerContext) -> list[Way]:
    """All of all kernels, but for those that another one is never worse than."""
    found = {
        _way(layer, variant)
        for kernel in kernels_for(layer.node)
        if _computes(kernel, layer)
        for variant in kernel.variants(layer)
    }

    def worse(way: Way) -> bool:
        return any(o != way and o.scratch <= way.scratch and o.over >= way.over for o in found)

    return [way for way in found if not worse(way)]


def _computes(kernel: Kernel, layer: LayerContext) -> bool:
    features = layer.target.features
    suits = kernel.features <= features and not kernel.superseded_by & features
    return suits and kernel.supports(layer) is None


def _way(layer: LayerContext, kernel: Kernel) -> Way:
    data = [layer.node.arguments[index] for index in kernel.data_inputs(layer)]
    over: set[tuple[Value, int, bool]] = set()
    for index, value in zip(kernel.data_inputs(layer), data, strict=True):
        if value is None or data.count(value) > 1:
            continue
        distance = kernel.overlap(layer, index)
        if distance is not None:
            over.add((value, _units(distance), False))
        elif kernel.in_place(layer, index):
            over.add((value, 0, True))
    return Way(_units(kernel.lower(layer).scratch), frozenset(over))


def orders(graph: Graph) -> Iterator[tuple[Node, ...]]:
    """All in which a graph's nodes can be computed."""
    made = {node.output: node for node in graph.nodes}
    for order in itertools.permutations(graph.nodes):
        place = {node: index for index, node in enumerate(order)}
        if all(place[made[v]] < place[node] for node in order for v in node.operands if v in made):
            yield order


class _Program:
    """The integer program of one order.

    Args:
        most: units that are enough for anything.
        caller: the graph's inputs and outputs are not in the arena.
    """

    def __init__(self, graph: Graph, order: Sequence[Node], choices: dict[Node, list[Way]], caller: bool):
        self.model = highspy.Highs()
        self.model.silent()
        values = [node.output for node in order] + ([] if caller else list(graph.inputs))
        self.values = [v for v in values if not (caller and v in graph.outputs)]
        self.most = sum(_units(v.type.nbytes) for v in self.values)
        self.most += sum(max(way.scratch for way in found) for found in choices.values())
        self.born = {node.output: index for index, node in enumerate(order)} | dict.fromkeys(graph.inputs, -1)
        self.dies = {v: max([self.born[v], *self._readers(order, v)]) for v in self.values}
        self.dies |= {v: len(order) for v in graph.outputs if v in self.dies}
        self.size = self.model.addIntegral(lb=0, ub=self.most)
        self.at = {v: self._place(_units(v.type.nbytes)) for v in self.values}
        self.taken = {
            node: [(way, self.model.addBinary()) for way in found] for node, found in choices.items()
        }
        for chosen in self.taken.values():
            self.model.addConstr(sum(taken for _, taken in chosen) == 1)
        for one, other in itertools.combinations(self.values, 2):
            if self.born[one] <= self.dies[other] and self.born[other] <= self.dies[one]:
                self._part(one, other, order)
        for index, node in enumerate(order):
            self._scratch(node, index)

    @staticmethod
    def _readers(order: Sequence[Node], value: Value) -> list[int]:
        return [index for index, node in enumerate(order) if value in node.operands]

    def _place(self, units: int) -> highspy.highs.highs_var:
        at = self.model.addIntegral(lb=0, ub=self.most)
        self.model.addConstr(at + units <= self.size)
        return at

    def _part(self, one: Value, other: Value, order: Sequence[Node]) -> None:
        """One lies below the other, above it, or as the kernel of a call in which it dies allows."""
        held = [self.model.addBinary(), self.model.addBinary()]
        for low, high, this in ((one, other, held[0]), (other, one, held[1])):
            units = _units(low.type.nbytes)
            self.model.addConstr(self.at[low] + units <= self.at[high] + self.most * (1 - this))
        for source, target in ((one, other), (other, one)):
            call = self.born[target]
            if call < 0 or self.dies[source] != call:
                continue
            for way, taken in self.taken[order[call]]:
                for value, distance, exact in way.over:
                    if value is source:
                        this = self.model.addBinary()
                        self.model.addConstr(this <= taken)
                        apart = self.at[source] - self.at[target]
                        self.model.addConstr(apart >= distance - 2 * self.most * (1 - this))
                        if exact:
                            self.model.addConstr(apart <= distance + 2 * self.most * (1 - this))
                        held.append(this)
        self.model.addConstr(sum(held) >= 1)

    def _scratch(self, node: Node, index: int) -> None:
        """Scratch lies apart from all that is alive in the call."""
        chosen = self.taken[node]
        if not any(way.scratch for way, _ in chosen):
            return
        units = sum(way.scratch * taken for way, taken in chosen)
        at = self.model.addIntegral(lb=0, ub=self.most)
        self.model.addConstr(at + units <= self.size)
        for value in self.values:
            if self.born[value] <= index <= self.dies[value]:
                below = self.model.addBinary()
                own = _units(value.type.nbytes)
                self.model.addConstr(at + units <= self.at[value] + 2 * self.most * (1 - below))
                self.model.addConstr(self.at[value] + own <= at + 2 * self.most * below)

    def solve(self) -> int:
        self.model.minimize(self.size)
        assert self.model.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return round(self.model.val(self.size)) * UNIT


def least_arena(graph: Graph, layers: Sequence[LayerContext], *, caller: bool) -> int:
    """Bytes without which no order of the calls and no kernels do."""
    choices = {layer.node: ways(layer) for layer in layers}
    return min(_Program(graph, order, choices, caller).solve() for order in orders(graph))
