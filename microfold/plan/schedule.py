"""Order of calls: the model's own order, or another one with a smaller arena."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.views import ALIGNMENT, Views, needs_no_code
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.plan.arena import bound_arena
from microfold.plan.bound import shared
from microfold.plan.coarse import plan_coarsely
from microfold.plan.liveness import Storage, alive_during, computing_nodes, storages
from microfold.plan.memory import MemoryPlan, overlaps_of, overlaps_of_all, permissions_of, place
from microfold.plan.order import CallNeeds, alive_in_any_order, better_order, shared_if_dying
from microfold.plan.overlap import Overlap, OverlapPermission
from microfold.plan.problem import units
from microfold.plan.windows import runs_above
from microfold.support.memo import Remembered


class Schedule(Struct, frozen=True):
    """Order in which a graph is computed, with its memory plan.

    Attributes:
        order: calls, as indices into the calls of the given graph.
        graph: graph with its nodes in this order.
    """

    order: Sequence[int]
    graph: Graph
    memory: MemoryPlan


# Input of the planner in addition to tensors: scratch memory of all calls, and the allowed overlaps.
_Question = tuple[tuple[int, ...], tuple[Overlap, ...]]


class SchedulePlanner(Struct, frozen=True, eq=False, dict=True):
    """Planner for the calls of a graph with different kernels.

    Attributes:
        layers: all computing nodes, in the order of the given graph.
        order: order of `graph`, as indices of layers.
        include_io: whether the graph's inputs and outputs are in the arena.
        alignment: alignment of all storages in the arena, in bytes.
    """

    graph: Graph
    layers: Sequence[LayerContext]
    order: Sequence[int]
    include_io: bool
    alignment: int = ALIGNMENT

    def plan(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> MemoryPlan:
        """Return the memory plan with the calls in this order.

        Args:
            kernels, calls: kernels and calls of `layers`.
        """
        ordered = [(self.layers[index], kernels[index]) for index in self.order]
        now = [calls[index] for index in self.order]
        overlaps = overlaps_of_all(ordered, self._owners, self._views)
        key = tuple(call.scratch for call in now), tuple(overlaps)
        if key not in self._plans:
            self._plans[key] = place(self._owners, overlaps, now, alignment=self.alignment)
        return self._plans[key]

    def runs_above(
        self, kernels: Sequence[Kernel], calls: Sequence[KernelCall], known: int
    ) -> list[Sequence[int]]:
        """Return the layers of short runs of calls that need more than the known bytes."""
        memory = self.plan(kernels, calls)

        def is_above(first: int, last: int) -> bool:
            inside = [block for block in memory.blocks if block.first <= last and block.last >= first]
            # The plan itself may show that the run needs no more.
            fits = max((memory.arena.offsets[b] + b.size for b in inside), default=0) <= known
            return not fits and self._bound(inside, memory.overlaps, known) > known

        found = runs_above(len(calls), is_above)
        return [self.order[run.first : run.last + 1] for run in found]

    def run_bound(self, run: Sequence[int], kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> int:
        """Return a lower bound of the arena in bytes for some consecutive calls.

        Args:
            run: their layers.
            kernels, calls: their kernels and calls.
        """
        positions = [self._positions[index] for index in run]
        first, last = min(positions), max(positions)
        blocks = [b for b in dict.fromkeys(self._owners.values()) if b.first <= last and b.last >= first]
        overlaps: list[Overlap] = []
        for position, index, kernel, call in zip(positions, run, kernels, calls, strict=True):
            overlaps += overlaps_of(position, self.layers[index], kernel, self._owners, self._views)
            if call.scratch:
                blocks.append(Storage(f"scratch of call {position}", call.scratch, position, position))
        return self._bound(blocks, overlaps)

    def _bound(
        self, blocks: Sequence[Storage], overlaps: Sequence[Overlap], wanted: int | None = None
    ) -> int:
        """Return a lower bound of the arena, in bytes.

        Questions about equal layers are equal, and are answered once.

        Args:
            wanted: decide only whether a plan of this size exists; None: return the best bound.
        """
        start = min(block.first for block in blocks)
        places = {block: place for place, block in enumerate(blocks)}
        question = (
            tuple((block.size, block.first - start, block.last - start) for block in blocks),
            frozenset(
                (places[o.source], places[o.target], o.distance, o.exact)
                for o in overlaps
                if o.source in places and o.target in places
            ),
            wanted,
        )
        return self._bounds(
            question, lambda: plan_coarsely(blocks, overlaps, self.alignment, wanted, bound_arena).bound
        )

    def planned(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> Schedule:
        """Return this order with the plan for some kernels."""
        return Schedule(self.order, self.graph, self.plan(kernels, calls))

    def schedule(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> Schedule:
        """Return the order with the smallest arena found; this order if no other one is better."""
        given, other = self.planned(kernels, calls), self.reordered(kernels, calls)
        if other is None:
            return given
        moved = other.planned(kernels, calls)
        # A lower need of each call does not guarantee a smaller plan.
        return moved if moved.memory.size < given.memory.size else given

    def reordered(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> SchedulePlanner | None:
        """Return a planner for the order with the least maximum need, if that is less than in this order."""
        # Stateful subgraphs depend on the order of their callers.
        if any(body.signature.stateful for body in self.graph.subgraphs.values()):
            return None
        needs = [self._needs(index, kernels[index], calls[index]) for index in self.order]
        asked = (*((tuple(each.allowed_overlaps), each.scratch) for each in needs),)
        if asked not in self._orders:
            self._orders[asked] = better_order(needs)
        found = self._orders[asked]
        if found is None:
            return None
        order = [self.order[position] for position in found]
        nodes = _in_order(self.graph, [self.layers[index].node for index in order])
        return replace(self, graph=replace(self.graph, nodes=tuple(nodes)), order=order)

    def need(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Return the minimum arena size for the storages alive in a layer's call, in this order, in bytes."""
        position = self._positions[index]
        overlaps = overlaps_of(position, self.layers[index], kernel, self._owners, self._views)
        return (self._alive[position] + units(call.scratch) - shared(overlaps)) * ALIGNMENT

    def need_in_any_order(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Return the bytes that a layer's call needs in every order."""
        target = self._owners.get(self.layers[index].node.outputs[0])
        allowed_overlaps = permissions_of(self.layers[index], kernel, self._owners, self._views)
        alive = self._always_alive[self._positions[index]] + units(call.scratch)
        return (alive - (shared_if_dying(target, allowed_overlaps) if target is not None else 0)) * ALIGNMENT

    def _needs(self, index: int, kernel: Kernel, call: KernelCall) -> CallNeeds:
        """Return the requirements of a layer's call, independent of the order."""
        allowed_overlaps = permissions_of(self.layers[index], kernel, self._owners, self._views)
        return replace(
            self._flow[self._positions[index]], allowed_overlaps=allowed_overlaps, scratch=call.scratch
        )

    @cached_property
    def _flow(self) -> list[CallNeeds]:
        """Reads and writes of the calls, without their kernels."""
        found: list[CallNeeds] = []
        for index in self.order:
            node = self.layers[index].node
            before = {position for value in node.operands for position in self._computing(value)}
            reads = [self._owners[value] for value in node.operands if value in self._owners]
            writes = [self._owners[value] for value in node.outputs if value in self._owners]
            target = self._owners.get(node.outputs[0])
            found.append(CallNeeds(frozenset(before), reads, writes, target, allowed_overlaps=(), scratch=0))
        return found

    def _computing(self, value: Value) -> Iterator[int]:
        """Yield the positions of the calls that a value depends on directly."""
        waiting, seen = [value], set[Node]()
        while waiting:
            node = self._producers.get(waiting.pop())
            if node is None or node in seen:
                continue
            seen.add(node)
            if needs_no_code(node):
                waiting += node.operands
            else:
                yield self._calls[node]

    @cached_property
    def _plans(self) -> dict[_Question, MemoryPlan]:
        """Cache of plans, by planner input."""
        return {}

    @cached_property
    def _bounds(self) -> Remembered:
        """Cache of lower bounds, by blocks and overlaps relative to the first call."""
        return Remembered()

    @cached_property
    def _orders(self) -> dict[tuple[tuple[tuple[OverlapPermission, ...], int], ...], list[int] | None]:
        """Cache of better orders, by the calls' requirements; None: none was found."""
        return {}

    @cached_property
    def _alive(self) -> list[int]:
        """Units that are alive in each call, without scratch memory."""
        blocks = dict.fromkeys(self._owners.values())
        return alive_during(blocks, len(self.order), lambda block: units(block.size))

    @cached_property
    def _always_alive(self) -> list[int]:
        """Units that are alive in each call in every order, without scratch memory."""
        return alive_in_any_order(self._flow)

    @cached_property
    def _owners(self) -> dict[Value, Storage]:
        calls = [self.layers[index].node for index in self.order]
        return storages(self.graph, calls, include_io=self.include_io)

    @cached_property
    def _views(self) -> Views:
        return Views(self.graph)

    @cached_property
    def _positions(self) -> dict[int, int]:
        """Position of each layer's call."""
        return {index: position for position, index in enumerate(self.order)}

    @cached_property
    def _producers(self) -> dict[Value, Node]:
        return self.graph.producers()

    @cached_property
    def _calls(self) -> dict[Node, int]:
        """Positions of the nodes that need a call."""
        return {node: position for position, node in enumerate(computing_nodes(self.graph))}


def _in_order(graph: Graph, calls: Collection[Node]) -> Iterator[Node]:
    """Yield all nodes of a graph with its calls in another order, each node after its operands."""
    producers, there = graph.producers(), set[Node]()
    # Nodes without code come right before the calls that read them, all others at the end.
    for last in (*calls, *graph.nodes):
        waiting = [last]
        while waiting:
            node = waiting[-1]
            missing = [p for v in node.operands if (p := producers.get(v)) is not None and p not in there]
            if node not in there and not missing:
                there.add(node)
                yield node
            if node in there:
                waiting.pop()
            waiting += missing
