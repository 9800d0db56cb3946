"""Cancels transposes against each other, and moves them to positions where they move fewer elements.

    %t: int8[1,8,4,4] = transpose(%x) {permutation=(0, 3, 1, 2)}
    %r: int8[1,8,4,4] = clip(%t) {minimum=0.0, maximum=6.0}
    %y: int8[1,4,4,8] = transpose(%r) {permutation=(0, 2, 3, 1)}
        ->
    %y: int8[1,4,4,8] = clip(%x) {minimum=0.0, maximum=6.0}

A transposed value is its source in another order of elements, and so is every chain of transposes, reshapes
and layout changes. This value travels forward through operators that can compute in that order
(`microfold.transform.layout.propagation` has their rules). It ends at a transpose that cancels it, at weights
that can be reordered, at a graph output, or at an operator that needs the original order. A transpose that
nothing cancels may instead be moved towards the inputs, if the values there are smaller.

The pass first tries all transposes together. Independent parts of the graph that become more expensive stay
unchanged. Then it tries each transpose alone, with the nodes around it.

The pass accepts a change only if the transposes of the graph then move fewer elements. Ties are decided by
fewer bytes, then by fewer transposes, then by a later position: after an operator that can then be fused into
the producer of its operand. Integers keep their bits. A sum of floats over permuted weights is accumulated in
another order, as in `canonicalize_ops` for depthwise convolutions; a sum of elements is not (unless
`numerics` is ``relaxed``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.rewrite import remove_dead_nodes
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.layout.propagation.cost import NOTHING, Cost, added, depths, movement_cost, node_cost
from microfold.transform.layout.propagation.rule import SweepPolicy
from microfold.transform.layout.propagation.sweep import Sweep, moves, run_side_by_side
from microfold.transform.layout.propagation.window import MAX_WINDOW, SubgraphWindow, Surroundings

# Number of nodes in the first window around a transpose.
_FIRST_WINDOW = 8


@function_pass(opt_level=3)
def optimize_layout_transform(graph: Graph, context: PassContext) -> Graph:
    """Move transposes as long as their cost decreases."""
    slim = remove_dead_nodes(graph)
    result = _Search(slim, context).run()
    if result is slim:
        return graph
    values = [value for node in slim.nodes for value in (*node.operands, *node.outputs)]
    if any(value.type.dtype.is_float for value in values):
        return result  # sums may be in another order, so that the bits of the two graphs differ
    ways = {"moved": result, "as they are": slim}
    taken = context.choose(
        "transposes", "moved", lambda: {way: float(movement_cost(each)[0]) for way, each in ways.items()}
    )
    return result if taken == "moved" else graph


class _Search:
    """Search for cheaper transposes.

    Attributes:
        stopped: reason why the message of each node could not continue.
        stuck: transposes that have been tried alone, with the nodes around them at that time.
    """

    def __init__(self, graph: Graph, context: PassContext):
        self.graph = graph
        self.context = context
        flags = [(eager, grow) for grow in (True, False) for eager in (False, True)]
        self.manners = [SweepPolicy(eager, grow, context.numerics) for eager, grow in flags]
        self.stopped: dict[Node, str] = {}
        self.stuck: dict[Node, tuple[Node, ...]] = {}

    def run(self) -> Graph:
        while True:
            seeds = _seeds(self.graph)
            if not seeds:
                return self.graph
            better = self._together(seeds) or self._alone(seeds)
            if better is None:
                break
            self.graph = better
        for node in _seeds(self.graph):
            reason = self.stopped.get(node, "its result leaves the graph")
            self.context.declined(node, f"no other position has a lower cost; {reason}")
        return self.graph

    def _accepted(self, result: Graph) -> bool:
        """Return whether the transposes of another graph cost less, and record the decision if they do."""
        before, after = movement_cost(self.graph), movement_cost(result)
        if after >= before:
            return False
        left = {node for node in result.nodes if moves(node.op)}
        seeds = _seeds(self.graph)
        self.context.fired(
            next((seed for seed in seeds if seed not in left), seeds[0]),
            f"transposes move {after[0]} elements ({after[1]} bytes) instead of {before[0]} ({before[1]})",
        )
        return True

    def _tries(self, graph: Graph, seeds: Sequence[Node]) -> Iterator[tuple[Sweep, Graph]]:
        """Yield the result of a sweep over a graph for each manner that makes a difference."""
        known: list[tuple[SweepPolicy, set[str]]] = []
        for manner in self.manners:
            if any(all(getattr(manner, c) == getattr(other, c) for c in choices) for other, choices in known):
                continue
            sweep = Sweep(graph, seeds, manner)
            result = sweep.run()
            known.append((manner, sweep.made.choices))
            yield sweep, result
            for node, reason in sweep.stopped.items():
                self.stopped.setdefault(node, reason)

    def _together(self, seeds: Sequence[Node]) -> Graph | None:
        """Send all messages at once, and keep the parts of the graph that improve."""
        for sweep, result in self._tries(self.graph, seeds):
            parts = _Parts(sweep.reached)
            before, after = _cost_by_part(self.graph, result, sweep, parts)
            known = before | after
            if not any(after[part] < before[part] for part in known):
                continue
            worse = {part for part in known if after[part] > before[part]}
            chosen = [seed for seed in seeds if parts[seed] not in worse]
            # The complete result may be even better, because parts can share reordered values.
            if len(chosen) < len(seeds):
                result = min(Sweep(self.graph, chosen, sweep.manner).run(), result, key=movement_cost)
            if self._accepted(result):
                return result
        return None

    def _alone(self, seeds: Sequence[Node]) -> Graph | None:
        """Send each message alone, and raise each transpose, in small parts of the graph."""
        surroundings = Surroundings(self.graph)
        late = depths(self.graph)
        found: list[dict[Node, Sweep]] = []
        taken: set[Node] = set()
        for seed in seeds:
            around = surroundings.around(seed)
            if self.stuck.get(seed) == around:
                continue
            better = next(self._better_windows(surroundings, late, seed), None)
            if better is None:
                self.stuck[seed] = around
            elif taken.isdisjoint(surroundings.touched(better[0])):
                window, sweep = better
                taken.update(window.graph.nodes)
                again = Sweep(self.graph, sweep.seeds, sweep.manner, sweep.raised)
                found.append(dict.fromkeys(window.graph.nodes, again))
        for chosen in (found, found[:1]):
            result = run_side_by_side(self.graph, {n: sweep for zone in chosen for n, sweep in zone.items()})
            if self._accepted(result):
                return result
        return None

    def _better_windows(
        self, surroundings: Surroundings, late: Mapping[Value, int], seed: Node
    ) -> Iterator[tuple[SubgraphWindow, Sweep]]:
        """Yield the windows around one transpose in which a sweep reduces the cost."""
        size = _FIRST_WINDOW
        while True:
            nodes = surroundings.behind([seed], size)
            window = surroundings.window(nodes)
            leaves = False
            for sweep, result in self._tries(window.graph, [seed]):
                if _is_better(window, result, late):
                    yield window, sweep
                leaves = leaves or not sweep.messages.isdisjoint(window.read_outside)
            if not leaves or len(nodes) < size or size == MAX_WINDOW:
                break
            size *= 2
        for window, raised in surroundings.raised(seed):
            sweep = Sweep(window.graph, _seeds(window.graph), self.manners[1], raised)
            if _is_better(window, sweep.run(), late):
                yield window, sweep


def _seeds(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if moves(node.op) and not node.epilogue]


def _is_better(window: SubgraphWindow, result: Graph, late: Mapping[Value, int]) -> bool:
    given = {value: late.get(value, 0) for value in window.graph.inputs}
    return movement_cost(result, given) < movement_cost(window.graph, given)


class _Parts:
    """Disjoint sets of dependent nodes, each identified by one of its nodes (union-find)."""

    def __init__(self, pairs: Iterable[tuple[Node, Node]]):
        self._parents: dict[Node, Node] = {}
        for one, other in pairs:
            self._parents[self[one]] = self[other]

    def __getitem__(self, node: Node) -> Node:
        root = node
        while (above := self._parents.get(root, root)) is not root:
            root = above
        while node is not root:
            self._parents[node], node = root, self._parents[node]
        return root


def _cost_by_part(
    graph: Graph, result: Graph, sweep: Sweep, parts: _Parts
) -> tuple[dict[Node, Cost], dict[Node, Cost]]:
    """Return the transposition cost of each part before a sweep, and of its replacement after the sweep."""
    before: dict[Node, Cost] = defaultdict(lambda: NOTHING)
    after: dict[Node, Cost] = defaultdict(lambda: NOTHING)
    late = depths(graph)
    for node in graph.nodes:
        if node in sweep.taken:
            before[parts[node]] = added(before[parts[node]], node_cost(node, late))
    late = depths(result)
    for node in result.nodes:
        owner = sweep.made.owners.get(node)
        if owner is not None and moves(node.op):
            after[parts[owner]] = added(after[parts[owner]], node_cost(node, late))
    return before, after
