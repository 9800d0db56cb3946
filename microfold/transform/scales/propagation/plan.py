"""Message plan: the path of every message, and the graph that results from it.

Both directions find their plan in the same way. A sweep lets every message travel as far as it can. If a
message cannot go on, its value is blocked with the reason, and the next sweep does without it. The set of
blocked values only grows, so that the iteration ends; then every remaining message arrives. Sweeps after the
first visit only nodes whose surroundings have changed, so that all sweeps together cost little more than one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, make_node
from microfold.ir.rewrite import remove_dead_nodes
from microfold.ir.types import DType
from microfold.ops.image import refuses_blocks
from microfold.passes.context import PassContext
from microfold.transform.scales.propagation.constants import Constants, apply
from microfold.transform.scales.propagation.message import Message, describe, equal
from microfold.transform.scales.propagation.rule import MessageKind, Messages, Rule, ScaledNode, Source
from microfold.transform.scales.propagation.unary_and_movement import SameMessage


@dataclass
class MessagePlan:
    """Result of one sweep.

    Attributes:
        sources: nodes to remove; each is replaced by its operand.
        messages: for each value, the message that it will have in addition (backward) or lack (forward).
        applied: for each node, the messages to apply to its constant or absent operands.
    """

    sources: dict[Node, Source] = field(default_factory=dict[Node, Source])
    messages: dict[Value, Message] = field(default_factory=dict[Value, Message])
    applied: dict[Node, Messages] = field(default_factory=dict[Node, Messages])


# Maximum number of nodes that a reason names.
MAX_NAMED = 8


class Planner:
    """Base class of both directions: nodes to visit, conditions of rules, and blocked values.

    Attributes:
        backward: whether sweeps and messages go from the outputs to the inputs.
    """

    backward: ClassVar[bool]

    def __init__(self, graph: Graph, kind: MessageKind):
        self.graph = graph
        self.kind = kind
        self.plan = MessagePlan()
        self.blocked: dict[Value, str] = {}
        self.ends = dict.fromkeys((*graph.outputs, *(state.next for state in graph.state)))
        self.producers = graph.producers()
        self.readers = graph.consumers()
        self._nodes = graph.nodes[::-1] if self.backward else graph.nodes
        self._place = {node: place for place, node in enumerate(self._nodes)}
        # Positions of nodes to visit: in this sweep, in order, and in the next one.
        self._ahead = list(range(len(self._nodes)))
        self._queued = set(self._ahead)
        self._next: set[int] = set()
        self._current = -1

    def visit(self, node: Node) -> None:
        """Propagate messages through a node, except to blocked values. This may block other values."""
        raise NotImplementedError

    def after_sweep(self) -> None:
        """Do work after the last node of a sweep."""

    def run(self) -> MessagePlan:
        """Sweep until every remaining message arrives, and return the plan."""
        while self._ahead:
            while self._ahead:
                self._current = heapq.heappop(self._ahead)
                self._queued.remove(self._current)
                self.visit(self._nodes[self._current])
            self._current = len(self._nodes)
            self.after_sweep()
            self._ahead, self._queued, self._next = sorted(self._next), self._next, set()
            self._current = -1
        return self.plan

    def touch(self, node: Node | None) -> None:
        """Visit a node again, in this sweep if it is still ahead, else in the next one."""
        place = self._place[node] if node is not None else -1
        if place > self._current and place not in self._queued:
            heapq.heappush(self._ahead, place)
            self._queued.add(place)
        elif 0 <= place <= self._current:
            self._next.add(place)

    def block(self, value: Value, reason: str) -> None:
        """Forbid messages to this value from now on."""
        if value not in self.blocked:
            self.blocked[value] = reason
            self.touch(self.producers.get(value))
            for reader in self.readers.get(value, ()):
                self.touch(reader)

    def set_message(self, value: Value, message: Message | None) -> bool:
        """Plan a value's message, and return whether it has changed."""
        news = not equal(self.plan.messages.get(value), message)
        if message is None:
            self.plan.messages.pop(value, None)
        else:
            self.plan.messages[value] = message
        return news

    def forget(self, node: Node) -> None:
        """Remove a node from the plan before it is visited again."""
        self.plan.sources.pop(node, None)
        self.plan.applied.pop(node, None)

    def place(self, node: Node) -> ScaledNode:
        return ScaledNode(self.kind, node, self.graph.constants, self.blocked)

    def source(self, node: Node) -> Source | None:
        """Return the source that a node is; a node with an epilogue does more than apply a message."""
        return self.kind.source(self.place(node)) if not node.epilogue else None

    def rule(self, node: Node) -> Rule | str:
        """Return the rule of the node's operator, or why it has none."""
        rule = self.kind.find(node.op)
        if rule is None or len(node.outputs) != 1:
            return f"{named(node)} passes no {self.kind.name}s"
        layout = refuses_blocks(node.op)
        if layout is not None:
            return f"{named(node)}: {layout}"
        if any(value.type.dtype is not DType.FLOAT32 for value in node.outputs):
            dtype = node.output.type.dtype.value
            return f"{named(node)} is {dtype}: moving a {self.kind.name} would change bits"
        return rule

    def sign_refusal(self, node: Node, rule: Rule, message: Message) -> str | None:
        if rule.any_sign or not np.any(message < 0):
            return None
        return f"{named(node)} passes only scales that are not negative; this one is {describe(message)}"

    def epilogue_refusal(self, node: Node, message: Message) -> str | None:
        """Return why a message cannot pass all epilogue steps. It is the same before and after each step."""
        for step in node.epilogue:
            place = self.place(Node(step.op, (node.outputs[0],), node.outputs))
            rule = self.kind.find(step.op)
            if not isinstance(rule, SameMessage) or step.operands:
                return f"{step.op.name} in the epilogue of {named(node)} passes no {self.kind.name}s"
            refusal = rule.refusal(place) or self.sign_refusal(place.node, rule, message)
            if refusal is not None:
                return f"in the epilogue of {named(node)}: {refusal}"
        return None

    def constant_refusal(self, node: Node, messages: Messages) -> str | None:
        """Return why a constant operand cannot take its message."""
        for value, message in zip(node.inputs, messages):  # noqa: B905 (absent ones come last)
            array = self.graph.array(value)
            if value is not None and array is not None and message is not None:
                result = apply(self.kind, value.name, array, message)
                if isinstance(result, str):
                    return f"{named(node)}: {result}"
        return None

    def explain(self, context: PassContext) -> None:
        """Record the result for every source, with its reason."""
        raise NotImplementedError

    def quantized_sources(self, context: PassContext) -> None:
        """Record that quantised products and sums with constants stay."""
        for node in self.graph.nodes:
            has_constant = any(value in self.graph.constants for value in node.operands)
            is_quantized = node.outputs[0].type.quant is not None
            if is_quantized and has_constant and node.op.name in _SOURCES[self.kind.name]:
                context.declined(
                    node,
                    f"it is quantised: its {self.kind.name} is rounded separately, and folded into another "
                    "node's multiplier or bias it would change bits",
                )


_SOURCES = {"scale": ("mul", "div"), "shift": ("add", "sub")}


def named(node: Node) -> str:
    """Return the name of a node in reasons."""
    return f"{node.op.name} %{node.outputs[0].name}"


def first_names(parts: Iterable[Sequence[str]]) -> list[str]:
    """Return the first distinct names of some lists, at most one more than reasons list."""
    found: dict[str, None] = {}
    for part in parts:
        found.update(dict.fromkeys(part))
        if len(found) > MAX_NAMED:
            break
    return list(found)[: MAX_NAMED + 1]


def listed(names: Sequence[str]) -> str:
    """Join the names from `first_names` for a reason."""
    return ", ".join(names) if len(names) <= MAX_NAMED else f"{', '.join(names[:MAX_NAMED])} and others"


def fold(graph: Graph, kind: MessageKind, context: PassContext, direction: type[Planner]) -> Graph:
    """Plan and rebuild until a plan is empty; return the same graph if the first plan is empty."""
    slim = remove_dead_nodes(graph)
    result = slim
    while True:
        planner = direction(result, kind)
        plan = planner.run()
        planner.explain(context)
        if not plan.sources:
            planner.quantized_sources(context)
            return graph if result is slim else result
        result = rebuild(result, kind, plan)


def rebuild(graph: Graph, kind: MessageKind, plan: MessagePlan) -> Graph:
    """Return the graph without the plan's sources, and with its messages applied."""
    constants = Constants(kind, dict(graph.constants))
    names = _names(graph, plan)
    replaced: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node in plan.sources:
            operand = node.inputs[plan.sources[node].operand]
            assert operand is not None
            replaced[node.output] = replaced.get(operand, operand)
            continue
        renewed = _renewed(node, plan, replaced, constants, names)
        if renewed is not node:
            replaced.update(
                (old, new) for old, new in zip(node.outputs, renewed.outputs, strict=True) if old is not new
            )
        nodes.append(renewed)
    return remove_dead_nodes(graph.with_nodes(nodes, constants=constants.arrays, replaced=replaced))


def _names(graph: Graph, plan: MessagePlan) -> Mapping[Value, str]:
    """Return the names of values that become outputs of the graph: they get the outputs' names."""
    names = {value: value.name for value in graph.outputs}
    for node in reversed(graph.nodes):
        if node in plan.sources and node.output in names:
            operand = node.inputs[plan.sources[node].operand]
            assert operand is not None
            names.setdefault(operand, names[node.output])
    return names


def _renewed(
    node: Node,
    plan: MessagePlan,
    replaced: Mapping[Value, Value],
    constants: Constants,
    names: Mapping[Value, str],
) -> Node:
    messages = plan.applied.get(node, ())
    inputs = [replaced.get(value, value) if value is not None else None for value in node.inputs]
    for index, message in enumerate(messages):
        value = node.inputs[index] if index < len(node.inputs) else None
        if message is not None and value is None:
            inputs += [None] * (index + 1 - len(inputs))
            inputs[index] = constants.made(f"{node.outputs[0].name}_bias", message)
        elif message is not None and value in constants.arrays:
            inputs[index] = constants.applied(value, message)
    steps = tuple(
        type(step)(step.op, tuple(replaced.get(value, value) for value in step.operands))
        for step in node.epilogue
    )
    # A value whose content changes becomes another value.
    if any(value in plan.messages for value in node.outputs):
        return make_node(node.op, inputs, [names.get(value, value.name) for value in node.outputs], steps)
    if tuple(inputs) == node.inputs and steps == node.epilogue:
        return node
    return Node(node.op, tuple(inputs), node.outputs, steps)
