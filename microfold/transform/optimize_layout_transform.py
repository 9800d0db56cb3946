"""Cancels transposes against each other, and moves them where they move fewer elements.

    %t: int8[1,8,4,4] = transpose(%x) {permutation=(0, 3, 1, 2)}
    %r: int8[1,8,4,4] = clip(%t) {minimum=0.0, maximum=6.0}
    %y: int8[1,4,4,8] = transpose(%r) {permutation=(0, 2, 3, 1)}
        ->
    %y: int8[1,4,4,8] = clip(%x) {minimum=0.0, maximum=6.0}

A transposed value is its source under another order, and so are all rows of transposes, reshapes and changes
of layout. Such a value travels forward, through operators that can compute under that order
(`microfold.transform.layouts` has their rules), until it meets the transpose that undoes it, weights that can
take the order, a graph output, or an operator that needs its elements as they were. Where nothing undoes a
transpose in front of it, it may be moved the other way, towards the inputs, if what is there is smaller.

A change is made only if the transposes of the graph then move fewer elements, else fewer bytes, else are
fewer, or move the same later: behind an operator that may then be fused into what computes its operand.
Integers keep their bits. A sum of floats over permuted weights is added up in another order, as where
`canonicalize_ops` makes a grouped convolution depthwise; a sum of elements is not (unless `numerics` is
``relaxed``).
"""

from __future__ import annotations

from collections.abc import Iterator

from microfold.ir.graph import Graph, Node, Value
from microfold.ir.rewrite import remove_dead_nodes
from microfold.ops.concatenate import Concatenate
from microfold.ops.pad import Pad
from microfold.ops.strided_slice import StridedSlice
from microfold.ops.transpose import Transpose
from microfold.passes import PassContext, function_pass
from microfold.transform.layouts.elementwise import is_elementwise
from microfold.transform.layouts.rule import Manner
from microfold.transform.layouts.sweep import Raised, Sweep, arrangement_of, moves

# Elements moved, bytes moved, transposes, and how late they stand (negative).
Cost = tuple[int, int, int, int]


@function_pass(opt_level=3)
def optimize_layout_transform(graph: Graph, context: PassContext) -> Graph:
    """Move transposes as long as that makes them cheaper."""
    current = remove_dead_nodes(graph)
    start = current
    while True:
        better = _improved(current, context)
        if better is None:
            break
        current = better
    return graph if current is start else current


def _improved(graph: Graph, context: PassContext) -> Graph | None:
    """A graph whose transposes cost less; None if no way to it is known."""
    seeds = [node for node in graph.nodes if moves(node.op) and not node.epilogue]
    if not seeds:
        return None
    cost = movement_cost(graph)
    stopped: dict[Node, str] = {}
    for sweep in _ways(graph, seeds, context):
        result = sweep.run()
        after = movement_cost(result)
        if after < cost:
            left = {node for node in result.nodes if moves(node.op)}
            where = next((seed for seed in seeds if seed not in left), seeds[0])
            context.fired(
                where,
                f"transposes move {after[0]} elements ({after[1]} bytes) now; it were {cost[0]} ({cost[1]})",
            )
            return result
        for node, reason in sweep.stopped.items():
            stopped.setdefault(node, reason)
    for node in seeds:
        reason = stopped.get(node, "its result leaves the graph")
        context.declined(node, f"nowhere else would it move fewer elements; {reason}")
    return None


def _ways(graph: Graph, seeds: list[Node], context: PassContext) -> Iterator[Sweep]:
    """What to try: all transposes together, each alone, each towards the inputs."""
    manners = [Manner(eager, grow, context.numerics) for grow in (True, False) for eager in (False, True)]
    for manner in manners:
        yield Sweep(graph, seeds, manner)
    if len(seeds) > 1:
        for seed in seeds:
            for manner in manners:
                yield Sweep(graph, (seed,), manner)
    for seed in seeds:
        for raised in _raised(graph, seed):
            yield Sweep(graph, seeds, manners[1], raised)


def _raised(graph: Graph, seed: Node) -> Iterator[Raised]:
    """Operands to transpose instead of the seed's: those of 1, 2, 4 … nodes before it along each path."""
    if not isinstance(seed.op, Transpose):
        return
    producers = graph.producers()
    depth, known = 1, 0
    while True:
        found: dict[tuple[Node, int], tuple[int, ...]] = {}
        inside: set[Node] = set()
        frontier = [(seed.operands[0], depth)]
        best: dict[Value, int] = {}
        while frontier:
            value, room = frontier.pop()
            if best.get(value, 0) >= room:
                continue
            best[value] = room
            node = producers.get(value)
            if node is None or not _keeps_axes(node):
                continue
            inside.add(node)
            frontier += [(operand, room - 1) for operand in node.operands if room > 1]
        for node in inside:
            for index, value in enumerate(node.inputs):
                if value is None or producers.get(value) in inside:
                    continue
                if value.type.rank == len(seed.op.permutation):
                    found[node, index] = seed.op.permutation
        if len(inside) == known:
            return
        known = len(inside)
        if found:
            yield found
        depth *= 2


def _keeps_axes(node: Node) -> bool:
    """The axes of its result are those of its operands."""
    return is_elementwise(node.op) or isinstance(node.op, Pad | StridedSlice | Concatenate)


def movement_cost(graph: Graph) -> Cost:
    """What the transposes of a graph cost; those that are views cost nothing but their number."""
    late: dict[Value, int] = {}
    elements = bytes = count = places = 0
    for node in graph.nodes:
        depth = max((late.get(value, 0) for value in node.operands), default=0)
        computes = not moves(node.op) and not node.op.is_view
        late.update(dict.fromkeys(node.outputs, depth + computes))
        if moves(node.op):
            x = node.operands[0].type
            count += 1
            places += depth
            if x.size > 0 and not arrangement_of(node.op, x.shape).is_view:
                elements, bytes = elements + x.size, bytes + x.nbytes
    return elements, bytes, count, -places
