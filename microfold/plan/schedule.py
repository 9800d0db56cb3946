"""The order of calls: the model's own, or another one whose arena is smaller."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.views import ALIGNMENT, Views, needs_no_code
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.plan.arena import plan_arena
from microfold.plan.bound import shared
from microfold.plan.coarse import plan_coarsely
from microfold.plan.liveness import Storage, alive_during, computing_nodes, storages
from microfold.plan.memory import Memory, leave_of, overlaps_of, overlaps_of_all, place
from microfold.plan.order import CallNeeds, alive_in_any_order, better_order, shared_if_dying
from microfold.plan.overlap import Leave, Overlap
from microfold.plan.problem import units
from microfold.plan.windows import runs_above
from microfold.support.frozen import frozen


@frozen
class Schedule:
    """In which order a graph is computed.

    Attributes:
        order: the calls, as indices into those of the graph that was given.
        graph: with its nodes in this order.
    """

    order: Sequence[int]
    graph: Graph
    memory: Memory


# What the planner has to place besides tensors: scratch of all calls; and what may lie over what.
_Question = tuple[tuple[int, ...], tuple[Overlap, ...]]


@frozen(eq=False)
class SchedulePlanner:
    """Plans the calls of a graph for different kernels.

    Attributes:
        layers: of all computing nodes, in the order of the graph that was given.
        order: that of `graph`, as indices of layers.
        include_io: whether the graph's inputs and outputs are in the arena.
        alignment: of all that is in the arena, bytes.
    """

    graph: Graph
    layers: Sequence[LayerContext]
    order: Sequence[int]
    include_io: bool
    alignment: int = ALIGNMENT

    def plan(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> Memory:
        """Return where everything lies with the calls in this order.

        Args:
            kernels, calls: those of `layers`.
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
        if memory.arena.bound <= known:
            return []  # not even all calls are known to need more

        def is_above(first: int, last: int) -> bool:
            inside = [block for block in memory.blocks if block.first <= last and block.last >= first]
            least = self._bound(inside, memory.overlaps, known) if sum(b.size for b in inside) > known else 0
            return least > known

        found = runs_above(len(calls), is_above)
        return [self.order[run.first : run.last + 1] for run in found]

    def run_bound(self, run: Sequence[int], kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> int:
        """Return the bytes that no plan for some calls that follow each other can go below.

        Args:
            run: their layers.
            kernels, calls: of these.
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
        """Return bytes that no plan goes below.

        Args:
            wanted: it is only asked whether there is a plan of so many bytes; None: the bound is the largest.
        """
        return plan_coarsely(blocks, overlaps, self.alignment, wanted, plan_arena).bound

    def planned(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> Schedule:
        """Return this order with the plan for some kernels."""
        return Schedule(self.order, self.graph, self.plan(kernels, calls))

    def schedule(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> Schedule:
        """The order with the least arena that was found; this one if no other is better."""
        given, other = self.planned(kernels, calls), self.reordered(kernels, calls)
        if other is None:
            return given
        moved = other.planned(kernels, calls)
        # What is alive in each call takes less, but it may be harder to place.
        return moved if moved.memory.size < given.memory.size else given

    def reordered(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> SchedulePlanner | None:
        """For the order in which the largest need of a call is least, if it is less than in this one."""
        # Bodies with a state of their own tell the first of their callers from the second.
        if any(body.signature.stateful for body in self.graph.subgraphs.values()):
            return None
        needs = [self._needs(index, kernels[index], calls[index]) for index in self.order]
        asked = (*((tuple(each.leave), each.scratch) for each in needs),)
        if asked not in self._orders:
            self._orders[asked] = better_order(needs)
        found = self._orders[asked]
        if found is None:
            return None
        order = [self.order[position] for position in found]
        nodes = _in_order(self.graph, [self.layers[index].node for index in order])
        return replace(self, graph=replace(self.graph, nodes=tuple(nodes)), order=order)

    def need(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Bytes of the smallest arena for what is alive in a layer's call, in this order."""
        position = self._positions[index]
        overlaps = overlaps_of(position, self.layers[index], kernel, self._owners, self._views)
        return (self._alive[position] + units(call.scratch) - shared(overlaps)) * ALIGNMENT

    def need_in_any_order(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        """Bytes that a layer's call needs whatever the order."""
        target = self._owners.get(self.layers[index].node.outputs[0])
        leave = leave_of(self.layers[index], kernel, self._owners, self._views)
        alive = self._always_alive[self._positions[index]] + units(call.scratch)
        return (alive - (shared_if_dying(target, leave) if target is not None else 0)) * ALIGNMENT

    def _needs(self, index: int, kernel: Kernel, call: KernelCall) -> CallNeeds:
        """What a layer's call needs, in whatever order."""
        leave = leave_of(self.layers[index], kernel, self._owners, self._views)
        return replace(self._flow[self._positions[index]], leave=leave, scratch=call.scratch)

    @cached_property
    def _flow(self) -> list[CallNeeds]:
        """What the calls read and write, kernels aside."""
        found: list[CallNeeds] = []
        for index in self.order:
            node = self.layers[index].node
            before = {position for value in node.operands for position in self._computing(value)}
            reads = [self._owners[value] for value in node.operands if value in self._owners]
            writes = [self._owners[value] for value in node.outputs if value in self._owners]
            target = self._owners.get(node.outputs[0])
            found.append(CallNeeds(frozenset(before), reads, writes, target, leave=(), scratch=0))
        return found

    def _computing(self, value: Value) -> Iterator[int]:
        """Positions of the calls after which a value is there."""
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
    def _plans(self) -> dict[_Question, Memory]:
        """The plan for each question."""
        return {}

    @cached_property
    def _orders(self) -> dict[tuple[tuple[tuple[Leave, ...], int], ...], list[int] | None]:
        """The better order for what calls ask for; None: none was found."""
        return {}

    @cached_property
    def _alive(self) -> list[int]:
        """Units that are alive in each call, scratch aside."""
        blocks = dict.fromkeys(self._owners.values())
        return alive_during(blocks, len(self.order), lambda block: units(block.size))

    @cached_property
    def _always_alive(self) -> list[int]:
        """Units that are alive in each call whatever the order, scratch aside."""
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
        """Where each layer's call comes."""
        return {index: position for position, index in enumerate(self.order)}

    @cached_property
    def _producers(self) -> dict[Value, Node]:
        return self.graph.producers()

    @cached_property
    def _calls(self) -> dict[Node, int]:
        """Positions of the nodes that need a call."""
        return {node: position for position, node in enumerate(computing_nodes(self.graph))}


def _in_order(graph: Graph, calls: Collection[Node]) -> Iterator[Node]:
    """All nodes of a graph, those that need a call in another order, each after what it reads."""
    producers, there = graph.producers(), set[Node]()
    # Of what needs no code, what calls read comes right before them, and the rest at the end.
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
