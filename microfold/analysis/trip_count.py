"""Trip counts of loops: exact, an upper bound, or the reason why there is none.

A condition is split into comparisons that must all hold (the minimum of bools is their conjunction). If one
compares a counter with a loop-invariant value, arithmetic bounds the trip count. A counter is a value to
which
every iteration adds the same number. The count is exact if all comparisons are of this kind and all numbers
are known. Other loops are executed at compile time, if the values that their condition depends on start as
constants. LLVM's ScalarEvolution uses both methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from microfold.analysis.interval import array_range, full_range
from microfold.analysis.ranges import Ranges
from microfold.ir.families import carried
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Node, Value
from microfold.ir.rewrite import remove_dead_nodes
from microfold.ir.types import Array
from microfold.ops.control.loop import LimitedWhile
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.compare import Compare
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.sub import Sub
from microfold.ops.movement.reshape import Reshape, before_reshapes

MAX_ELEMENTS = 1024  # limit of computed elements per iteration of a loop that is executed here

Interval = tuple[int, int]


class TripCount(Struct, frozen=True):
    """Trip count of a loop, as far as it is known.

    Attributes:
        most: upper bound; None if no bound is known.
        exact: exact number; None if it is not known.
        reason: why no exact count is known; empty if it is known.
    """

    most: int | None
    exact: int | None = None
    reason: str = ""


class _LoopAtHand(Struct, frozen=True):
    """Loop, with its operands before the first iteration.

    Attributes:
        initial: arrays of the operands that are constant.
        ranges: ranges of the operands that are integers.
    """

    condition: Graph
    body: Graph
    initial: Sequence[Array | None]
    ranges: Sequence[Interval | None]


def trip_count(node: Node, graph: Graph, ranges: Ranges, limit: int) -> TripCount:
    """Return the trip count of a `While`, without regard to a limit of its own.

    Args:
        limit: maximum number of iterations to execute here if arithmetic does not tell the count.
    """
    loop = _at_hand(node, graph, ranges)
    found = _by_arithmetic(loop)
    if found.exact is None:
        simulated = _simulated(loop, limit)
        if isinstance(simulated, int):
            return TripCount(simulated, simulated)
        found = replace(found, reason=simulated)
    return found


def stops_early(node: Node, count: TripCount) -> bool:
    """Return whether a loop with a limit may stop at the limit before its condition ends it."""
    return isinstance(node.op, LimitedWhile) and (count.most is None or count.most > node.op.limit)


def _at_hand(node: Node, graph: Graph, ranges: Ranges) -> _LoopAtHand:
    """Return the loop of a `While` node of a graph."""
    condition, body = (graph.subgraphs[name] for name in node.op.bodies)
    found: list[Interval | None] = []
    for value in node.operands:
        known = ranges.values.get(value)
        found.append(known.hull if known is not None else None)
    return _LoopAtHand(condition, body, [graph.array(value) for value in node.inputs], found)


# Counters


def _by_arithmetic(loop: _LoopAtHand) -> TripCount:
    """Return the smallest bound of any comparison; it is exact if all comparisons are."""
    producers = loop.condition.producers()
    counts = [_comparison(loop, each) for each in _conjuncts(loop.condition.outputs[0], producers)]
    known = [count for count in counts if count is not None]
    if not known:
        return TripCount(None)
    most = min(high for _, high in known)
    exact = len(known) == len(counts) and all(low == high for low, high in known)
    return TripCount(most, most if exact else None)


def _conjuncts(value: Value, producers: dict[Value, Node]) -> Iterator[Node | None]:
    """Yield the nodes that must all be true so that a bool is true; None for an unknown part."""
    node = producers.get(value)
    if node is None or node.epilogue:
        yield None
    elif isinstance(node.op, Minimum):
        for operand in node.operands:
            yield from _conjuncts(operand, producers)
    elif isinstance(node.op, Reshape):
        yield from _conjuncts(node.operands[0], producers)
    else:
        yield node


def _comparison(loop: _LoopAtHand, node: Node | None) -> Interval | None:
    """Return the least and greatest number of first iterations in which a comparison holds; None: unknown."""
    if node is None or not isinstance(node.op, Compare) or not node.operands[0].type.dtype.is_integer:
        return None
    if any(v.type.size != 1 or v.type.quant is not None for v in node.operands):
        return None
    sides = [_side(loop, value) for value in node.operands]
    first, second = sides
    if first is None or second is None or (first.step != 0) == (second.step != 0):
        return None
    relation = node.op.relation
    if second.step:
        first, second = second, first
        relation = _MIRRORED.get(relation, relation)
    counter, bound, step = first.start, second.start, first.step
    # Reduce to a rising counter: negate both sides.
    if step < 0:
        counter, bound, step = _negated(counter), _negated(bound), -step
        relation = _MIRRORED.get(relation, relation)
    if relation == "not_equal":
        exact = counter[0] == counter[1] and bound[0] == bound[1]
        distance = bound[0] - counter[0]
        times = distance // step
        return (times, times) if exact and distance >= 0 and distance % step == 0 else None
    if relation == "less_equal":
        bound, relation = (bound[0] + 1, bound[1] + 1), "less"
    if relation != "less":
        return None
    # The counter must not wrap around before it reaches the bound.
    largest = node.operands[0].type.dtype.range[1]
    if bound[1] - 1 + step > largest:
        return None
    return _runs(bound[0] - counter[1], step), _runs(bound[1] - counter[0], step)


_MIRRORED = {
    "less": "greater",
    "greater": "less",
    "less_equal": "greater_equal",
    "greater_equal": "less_equal",
}


def _runs(distance: int, step: int) -> int:
    return max(0, -(-distance // step))


def _negated(interval: Interval) -> Interval:
    return -interval[1], -interval[0]


class _Side(Struct, frozen=True):
    """Side of a comparison: its value before the first iteration, and its increment per iteration."""

    start: Interval
    step: int


def _side(loop: _LoopAtHand, value: Value) -> _Side | None:
    array = loop.condition.array(value)
    if array is not None:
        return _Side(array_range(array).hull, 0)
    value = before_reshapes(value, loop.condition.producers())
    if value not in loop.condition.inputs:
        return None
    index = loop.condition.inputs.index(value)
    step = _step(loop.body, index)
    initial = loop.initial[index]
    start = array_range(initial).hull if initial is not None else loop.ranges[index]
    if start is None:
        start = full_range(value.type).hull
    return _Side(start, step) if step is not None else None


def _step(body: Graph, index: int) -> int | None:
    """Return the constant that every iteration adds to a carried value; None if there is none."""
    own, result = body.inputs[index], before_reshapes(body.outputs[index], body.producers())
    if result is own:
        return 0
    node = body.producers().get(result)
    if node is None or node.epilogue or own.type.size != 1 or not isinstance(node.op, Add | Sub):
        return None
    first, second = node.operands
    if isinstance(node.op, Add) and body.array(first) is not None:
        first, second = second, first
    array = body.array(second)
    if array is None or array.size != 1 or before_reshapes(first, body.producers()) is not own:
        return None
    step = int(array.item())
    return -step if isinstance(node.op, Sub) else step


# Other loops


def _simulated(loop: _LoopAtHand, limit: int) -> int | str:
    """Return the trip count of a loop by executing it, or the reason why it is not known."""
    condition, body = loop.condition, loop.body
    order = sorted(carried(condition, body))
    for index in order:
        if loop.initial[index] is None:
            return (
                f"its condition depends on %{body.inputs[index].name}, which is not constant before the loop"
            )
    decide = _slice(condition, order, condition.outputs)
    step = _slice(body, order, [body.outputs[i] for i in order])
    nodes = (*decide.nodes, *step.nodes)
    if any(node.op.bodies for node in nodes):
        return "another loop or condition decides how often it runs"
    if sum(value.type.size for node in nodes for value in node.outputs) > MAX_ELEMENTS:
        return f"the trip count depends on more than {MAX_ELEMENTS} elements"
    current = [array for i in order if (array := loop.initial[i]) is not None]
    decider, stepper = Interpreter(decide), Interpreter(step)
    for trips in range(limit + 1):
        (again,) = decider.run(*current)
        if not again.item():
            return trips
        current = list(stepper.run(*current))
    return f"it runs more than {limit} times"


def _slice(graph: Graph, inputs: Sequence[int], outputs: Sequence[Value]) -> Graph:
    """Return the part of a graph that computes some outputs from some inputs."""
    slim = replace(graph, inputs=tuple(graph.inputs[i] for i in inputs), outputs=tuple(outputs))
    return remove_dead_nodes(slim)
