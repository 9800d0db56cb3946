"""Cancels transposes against each other, and moves them where they move fewer elements.

    %t: int8[1,8,4,4] = transpose(%x) {permutation=(0, 3, 1, 2)}
    %r: int8[1,8,4,4] = clip(%t) {minimum=0.0, maximum=6.0}
    %y: int8[1,4,4,8] = transpose(%r) {permutation=(0, 2, 3, 1)}
        ->
    %y: int8[1,4,4,8] = clip(%x) {minimum=0.0, maximum=6.0}

A transposed value is its source under another order, and so are all rows of transposes, reshapes and changes
of layout. Such a value travels forward, through operators that can compute under that order
(`microfold.transform.layout.propagation` has their rules), until it meets the transpose that undoes it,
weights that can take the order, a graph output, or an operator that needs its elements as they were. Where
nothing undoes a transpose in front of it, it may be moved the other way, towards the inputs, if what is there
is smaller.

All transposes are tried together. Where that makes some dearer, those parts of the graph, which have nothing
to do with the others, stay as they are. Then each is tried alone, with the nodes around it.

A change is made only if the transposes of the graph then move fewer elements, else fewer bytes, else are
fewer, or move the same later: behind an operator that may then be fused into what computes its operand.
Integers keep their bits. A sum of floats over permuted weights is added up in another order, as where
`canonicalize_ops` makes a grouped convolution depthwise; a sum of elements is not (unless `numerics` is
``relaxed``).
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
from microfold.transform.layout.propagation.rule import Manner
from microfold.transform.layout.propagation.sweep import Sweep, moves, run_side_by_side
from microfold.transform.layout.propagation.window import MAX_WINDOW, Surroundings, Window

# Nodes of the first window around a transpose.
_FIRST_WINDOW = 8


@function_pass(opt_level=3)
def optimize_layout_transform(graph: Graph, context: PassContext) -> Graph:
    """Move transposes as long as that makes them cheaper."""
    slim = remove_dead_nodes(graph)
    result = _Search(slim, context).run()
    if result is slim:
        return graph
    values = [value for node in slim.nodes for value in (*node.operands, *node.outputs)]
    if any(value.type.dtype.is_float for value in values):
        return result  # its sums may have another order: the other way has other bits
    ways = {"moved": result, "as they are": slim}
    taken = context.choose(
        "transposes", "moved", lambda: {way: float(movement_cost(each)[0]) for way, each in ways.items()}
    )
    return result if taken == "moved" else graph


class _Search:
    """The way to cheaper transposes.

    Attributes:
        stopped: why the message of a node could not go on.
        stuck: transposes that have been tried alone, and the nodes around them that were tried with them.
    """

    def __init__(self, graph: Graph, context: PassContext):
        self.graph = graph
        self.context = context
        flags = [(eager, grow) for grow in (True, False) for eager in (False, True)]
        self.manners = [Manner(eager, grow, context.numerics) for eager, grow in flags]
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
            self.context.declined(node, f"nowhere else would it move fewer elements; {reason}")
        return self.graph

    def _accepted(self, result: Graph) -> bool:
        """Whether the transposes of another graph cost less; then that is recorded."""
        before, after = movement_cost(self.graph), movement_cost(result)
        if after >= before:
            return False
        left = {node for node in result.nodes if moves(node.op)}
        seeds = _seeds(self.graph)
        self.context.fired(
            next((seed for seed in seeds if seed not in left), seeds[0]),
            f"transposes move {after[0]} elements ({after[1]} bytes) now; it were {before[0]} ({before[1]})",
        )
        return True

    def _tries(self, graph: Graph, seeds: Sequence[Node]) -> Iterator[tuple[Sweep, Graph]]:
        """What becomes of a graph in each manner that makes a difference."""
        known: list[tuple[Manner, set[str]]] = []
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
        """All messages at once: kept in those parts of the graph where that is better."""
        for sweep, result in self._tries(self.graph, seeds):
            parts = _Parts(sweep.reached)
            before, after = _cost_by_part(self.graph, result, sweep, parts)
            known = before | after
            if not any(after[part] < before[part] for part in known):
                continue
            worse = {part for part in known if after[part] > before[part]}
            chosen = [seed for seed in seeds if parts[seed] not in worse]
            # All of it may be better still: parts can share what one of them has to move.
            if len(chosen) < len(seeds):
                result = min(Sweep(self.graph, chosen, sweep.manner).run(), result, key=movement_cost)
            if self._accepted(result):
                return result
        return None

    def _alone(self, seeds: Sequence[Node]) -> Graph | None:
        """Each message alone, and each transpose towards the inputs, in small parts of the graph."""
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
    ) -> Iterator[tuple[Window, Sweep]]:
        """What makes transposes around one cheaper, and where."""
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


def _is_better(window: Window, result: Graph, late: Mapping[Value, int]) -> bool:
    given = {value: late.get(value, 0) for value in window.graph.inputs}
    return movement_cost(result, given) < movement_cost(window.graph, given)


class _Parts:
    """Disjoint sets of nodes that have to do with each other, each known by one of them."""

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
    """What the transposes of each part cost before a sweep, and what those cost that it made instead."""
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
