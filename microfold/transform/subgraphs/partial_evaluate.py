"""Decides at compile time what conditions and loops do, where constants alone decide it.

    %c = constant bool[] [true]
    %y: int8[4] = if(%c, %x) {then="f", ...}            ->  %y: int8[4] = call(%x) {body="f", ...}

    %i = constant int32[] [0]                               %i = constant int32[] [0]
    %j: int32[], %y: int8[4] = while(%i, %x) {              %a: int32[], %b: int8[4] = call(%i, %x) {...}
      condition="less_than_2", body="step"              ->  %j: int32[], %y: int8[4] = call(%a, %b) {...}
    }

A loop is a row of calls when its trip count can be computed: when the operands that its condition depends on,
from run to run, begin as constants and each follows from the others alone. A loop that would grow the graph
beyond `max_nodes` nodes stays. `inline` then puts the bodies in place. Every bit stays. Conditions that a
computed value decides run both ways: see `if_conversion`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from microfold.ir.families import carried
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Value
from microfold.ir.rewrite import RewriteSite, forward_rewrite, remove_dead_nodes
from microfold.ir.types import Array
from microfold.ops.control.call import Call
from microfold.ops.control.control_flow import If, While
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

MAX_NODES = 4096
MAX_ELEMENTS = 1024  # to compute in one run, where nothing but the trip count is wanted


@function_pass(opt_level=0, mandatory=True)
@dataclass(frozen=True)
class PartialEvaluate:
    """Replace conditions and loops that constants decide by calls.

    Attributes:
        max_nodes: how many nodes all runs of a loop together may have.
    """

    max_nodes: int = MAX_NODES

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        def choose(site: RewriteSite[None]) -> tuple[Value, ...] | None:
            op = site.node.op
            assert isinstance(op, If)
            condition = site.array(site.node.inputs[0])
            if condition is None:
                context.declined(site.node, "its condition is computed")
                return None
            name = op.then if condition.item() else op.otherwise
            context.fired(site.node, f"its condition is {bool(condition.item())}".lower())
            return site.emit(Call(name, op.results), *site.inputs[1:], epilogue=site.epilogue)

        def unroll(site: RewriteSite[None]) -> tuple[Value, ...] | None:
            op, node = site.node.op, site.node
            assert isinstance(op, While)
            if node.epilogue:
                context.declined(node, "it has an epilogue")
                return None
            body = graph.subgraphs[op.body]
            size = max(1, _size(body))
            trips = _trip_count(
                graph.subgraphs[op.condition],
                body,
                [site.array(value) for value in node.inputs],
                self.max_nodes // size,
            )
            if isinstance(trips, str):
                context.declined(node, trips)
                return None
            context.fired(node, f"it runs {trips} times over the {size} nodes of @{op.body}")
            names = [value.name for value in node.outputs]
            current = tuple(site.builder.value(x) for x in site.inputs if x is not None)
            for _ in range(trips):
                current = site.builder.emit(Call(op.body, body.signature.outputs), current, names)
            return current

        return forward_rewrite(graph, {If: choose, While: unroll})


def _size(graph: Graph) -> int:
    """Nodes of a graph with all that it runs."""
    return sum(1 + sum(_size(graph.subgraphs[name]) for name in node.op.bodies) for node in graph.nodes)


def _trip_count(condition: Graph, body: Graph, initial: Sequence[Array | None], limit: int) -> int | str:
    """How often a loop runs, or why that is not known.

    Args:
        initial: the operands that are constant before the first run.
    """
    order = sorted(carried(condition, body))
    for index in order:
        if initial[index] is None:
            return f"its condition depends on %{body.inputs[index].name}, which is not constant before it"
    decide = _slice(condition, order, condition.outputs)
    step = _slice(body, order, [body.outputs[i] for i in order])
    nodes = (*decide.nodes, *step.nodes)
    if any(node.op.bodies for node in nodes):
        return "another loop or condition decides how often it runs"
    if sum(value.type.size for node in nodes for value in node.outputs) > MAX_ELEMENTS:
        return f"how often it runs depends on more than {MAX_ELEMENTS} elements"
    current = [array for i in order if (array := initial[i]) is not None]
    decider, stepper = Interpreter(decide), Interpreter(step)
    for trips in range(limit + 1):
        (again,) = decider.run(*current)
        if not again.item():
            return trips
        current = list(stepper.run(*current))
    return f"it runs more than {limit} times, the number at which its nodes would be too many"


def _slice(graph: Graph, inputs: Sequence[int], outputs: Sequence[Value]) -> Graph:
    """What computes some outputs from some inputs."""
    slim = replace(graph, inputs=tuple(graph.inputs[i] for i in inputs), outputs=tuple(outputs))
    return remove_dead_nodes(slim)
