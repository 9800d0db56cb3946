"""Lowers loops to the form for code generation: with a known trip count, or with an upper bound of it.

    %j: int32[], %y: int8[4], %v: int8[4] = while(%zero, %x, %w) {condition="less_than_8", body="step"}
    subgraph @step = graph @step(%n: int32[], %p: int8[4], %q: int8[4]) -> (%m, %t, %q) {...}
->
    %y: int8[4] = loop(%x, %w) {body="step", runs=8, condition="", invariants=1, may_stop=false}
    subgraph @step = graph @step(%p: int8[4], %q: int8[4]) -> (%t) {...}

If the trip count is known (see `analysis.trip_count`), the condition is removed, with the values that only it
needs. Otherwise the loop must have a bound of at most `MAX_RUNS`, or a limit from the user. Each node gets
separate bodies, so that each value in them has one address. Loop invariants are separated from the values
that a loop carries. All bits stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from microfold.analysis.ranges import analyze
from microfold.analysis.trip_count import TripCount, stops_early, trip_count
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.outline import fresh_name
from microfold.ir.rewrite import RewriteSite, forward_rewrite, remove_dead_nodes
from microfold.ir.splice import splice
from microfold.ir.types import Array
from microfold.ops.control.control_flow import While
from microfold.ops.control.loop import LimitedWhile, Loop
from microfold.ops.movement.reshape import Reshape
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

# Maximum number of iterations that a bound may allow. A loop with a larger bound counts as unbounded.
MAX_RUNS = 1 << 16
# Maximum number of iterations to simulate, for conditions that are no arithmetic on a counter.
SIMULATED_RUNS = 4096
NO_CONSTANTS: Mapping[int, tuple[Value, Array]] = MappingProxyType({})


@function_pass(opt_level=0, mandatory=True)
def lower_loops(graph: Graph, context: PassContext) -> Graph:
    """Replace `while` by `loop` if it has a bound."""
    if not any(isinstance(node.op, While) for node in graph.nodes):
        return graph
    ranges, uses = analyze(graph), graph.use_counts()
    bodies = dict(graph.subgraphs)

    def lower(site: RewriteSite[None]) -> Sequence[Value] | None:
        node = site.node
        count = trip_count(node, graph, ranges, SIMULATED_RUNS)
        runs = _runs(node, count)
        if runs is None:
            context.declined(node, _unbounded(count))
            return None
        stops = stops_early(node, count)
        used = {index for index, value in enumerate(node.outputs) if uses[value]}
        used |= {0} if node.epilogue else set()
        by_condition = stops or count.exact is None
        loop = _Narrowed(
            node, graph, used, by_condition=by_condition, surely_runs=not by_condition and runs > 0
        )
        names = [fresh_name(body.name, bodies) for body in loop.bodies]
        for name, body in zip(names, loop.bodies, strict=True):
            bodies[name] = replace(body, name=name)
        op = Loop(names[-1], runs, names[0] if len(names) > 1 else "", len(loop.invariants), may_stop=stops)
        inputs = [site.inputs[i] for i in (*loop.carried, *loop.invariants)]
        results = site.builder.emit(op, inputs, [node.outputs[i].name for i in loop.carried])
        context.fired(node, _reason(count, runs, stops))
        # Values that the loop does not carry are the values before it.
        found = [site.value(index) for index in range(len(node.outputs))]
        for index, result in zip(loop.carried, results, strict=True):
            found[index] = result
        for index, other in loop.same_bytes.items():
            value, shape = found[other], node.outputs[index].type.shape
            assert value is not None
            (found[index],) = site.builder.emit(Reshape(shape), [value], [node.outputs[index].name])
        values = [value for value in found if value is not None]
        for step in site.epilogue:
            (values[0],) = site.builder.emit(step.op, [values[0], *step.operands], [node.outputs[0].name])
        return values

    lowered = forward_rewrite(graph, {While: lower})
    if lowered is graph:
        return graph
    used = {name for node in lowered.nodes for name in node.op.bodies}
    return replace(lowered, subgraphs={name: body for name, body in bodies.items() if name in used})


def _runs(node: Node, count: TripCount) -> int | None:
    """Return the maximum number of iterations of the loop; None: it has no bound."""
    if isinstance(node.op, LimitedWhile):
        return node.op.limit if count.most is None else min(count.most, node.op.limit)
    return count.most if count.most is not None and count.most <= MAX_RUNS else None


def _unbounded(count: TripCount) -> str:
    if count.most is None:
        return f"the number of its iterations has no bound: {count.reason}"
    return f"it may run {count.most} times; a bound must be at most {MAX_RUNS}"


def _reason(count: TripCount, runs: int, stops: bool) -> str:
    if stops:
        return f"it is stopped after {runs} runs"
    return f"it runs {runs} times" if count.exact is not None else f"it runs at most {runs} times"


def constant_operands(
    graph: Graph, operands: Sequence[Value | None], indices: Iterable[int]
) -> dict[int, tuple[Value, Array]]:
    """Return the operands that are constants, by their indices."""
    found: dict[int, tuple[Value, Array]] = {}
    for index in indices:
        value, array = operands[index], graph.array(operands[index])
        if value is not None and array is not None:
            found[index] = value, array
    return found


class _Narrowed:
    """Loop reduced to the values that its used results, and its condition if it is kept, depend on.

    Attributes:
        carried, invariants: indices of the operands.
        same_bytes: results that equal another result with another shape, by its index. No iteration reads
            them, only nodes after the loop.
        bodies: copies of the condition, if it is kept, and of the body.
    """

    def __init__(self, node: Node, graph: Graph, used: set[int], *, by_condition: bool, surely_runs: bool):
        assert isinstance(node.op, While)
        condition, body = (graph.subgraphs[name] for name in node.op.bodies)
        needed = set(used) or {0}
        if by_condition:
            needed |= condition.inputs_read(condition.outputs)
        needed = _closed(body, needed)
        self.same_bytes = _same_bytes(body, needed) if surely_runs else {}
        needed -= self.same_bytes.keys()
        same = {i for i in needed if body.outputs[i] is body.inputs[i]}
        if same == needed:  # a loop must carry a value: carry one invariant
            same.discard(min(needed))
        constants = constant_operands(graph, node.inputs, same)
        read = used | {self.same_bytes[i] for i in used & self.same_bytes.keys()}
        # Results with readers after the loop first, because a layer is named after its first result.
        self.carried = sorted(needed - same, key=lambda index: (index not in read, index))
        self.invariants = sorted(same - constants.keys())
        order = [*self.carried, *self.invariants]
        self.bodies = [_late(own_copy(body, order, [body.outputs[i] for i in self.carried], constants))]
        if by_condition:
            self.bodies.insert(0, own_copy(condition, order, condition.outputs, constants))


def _late(body: Graph) -> Graph:
    """Move nodes that only update parameters, such as counters, to the end, where these are dead."""
    read = {value for node in body.nodes for value in node.operands}
    given = {*body.inputs, *body.constants}
    last = [n for n in body.nodes if given.issuperset(n.operands) and read.isdisjoint(n.outputs)]
    return body.with_nodes([*(node for node in body.nodes if node not in last), *last])


def _closed(body: Graph, needed: set[int]) -> set[int]:
    """Return the indices of all values that a body must carry to compute some of its results."""
    size = -1
    while size != len(needed):
        size = len(needed)
        needed = needed | body.inputs_read([body.outputs[index] for index in needed])
    return needed


def _same_bytes(body: Graph, needed: set[int]) -> dict[int, int]:
    """Return results that are reshapes of other results, and whose parameters the body does not read."""
    producers = body.producers()

    def root(value: Value) -> Value:
        node = producers.get(value)
        is_view = node is not None and isinstance(node.op, Reshape) and not node.epilogue
        return root(node.operands[0]) if node is not None and is_view else value

    read = body.use_counts()
    first: dict[Value, int] = {}
    unread = {index for index in needed if not read[body.inputs[index]]}
    for index in (*sorted(needed - unread), *sorted(unread)):
        first.setdefault(root(body.outputs[index]), index)
    return {i: other for i in sorted(unread) if (other := first[root(body.outputs[i])]) != i}


def own_copy(
    body: Graph,
    inputs: Sequence[int],
    outputs: Sequence[Value],
    constants: Mapping[int, tuple[Value, Array]] = NO_CONSTANTS,
) -> Graph:
    """Return a graph with values of its own, except for constants.

    Args:
        inputs: indices of the parameters of the new graph.
        outputs: values of `body` that the new graph returns.
        constants: constants that replace parameters, by their indices.
    """
    parameters = [replace(value) for value in body.inputs]
    given = [constants[i][0] if i in constants else value for i, value in enumerate(parameters)]
    copy = splice(replace(body, outputs=tuple(outputs)), given)
    return remove_dead_nodes(
        Graph(
            body.name,
            tuple(parameters[i] for i in inputs),
            copy.outputs,
            copy.nodes,
            {**body.constants, **dict(constants.values())},
            subgraphs={
                name: own_copy(inner, range(len(inner.inputs)), inner.outputs)
                for name, inner in body.subgraphs.items()
            },
        )
    )
