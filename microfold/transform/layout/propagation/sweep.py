"""Sweep: messages start at transposes, travel as far as rules permit, and are reordered there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from microfold.errors import TypeRuleError
from microfold.ir import layout as layouts
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe
from microfold.ir.op import Op
from microfold.ir.rewrite import Operand, RewriteSite, forward_rewrite
from microfold.ir.types import Shape, TensorType
from microfold.ops.image import layout_of, with_layout
from microfold.ops.movement.layout_transform import LayoutTransform
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.transpose import Transpose
from microfold.transform.layout.propagation import axes, images, matmul
from microfold.transform.layout.propagation.arrangement import Arrangement
from microfold.transform.layout.propagation.elementwise import elementwise, is_elementwise
from microfold.transform.layout.propagation.message import Arranged, SweepResults, put_in_order
from microfold.transform.layout.propagation.rule import RULES, ReorderedNode, Rule, SweepPolicy

# Importing a rule module registers its rules.
_RULES = (axes, images, matmul)

# Operands to transpose before their node reads them: permutation by (node, index).
Raised = Mapping[tuple[Node, int], tuple[int, ...]]
# Returns the layout in which a node must compute; None: its own layout.
Wish = Callable[[Node], str | None]


def moves(op: Op) -> bool:
    """Return whether the operator only reorders elements."""
    return isinstance(op, Transpose | LayoutTransform)


def arrangement_of(op: Op, shape: Shape) -> Arrangement:
    """Return the arrangement by which a transpose, layout change or reshape changes its operand."""
    if isinstance(op, Transpose):
        return Arrangement(shape, op.permutation)
    if isinstance(op, LayoutTransform):
        transform = layouts.between(op.source, op.target, shape)
        return Arrangement(transform.split, transform.permutation)
    return Arrangement.identity(shape)


@dataclass
class Sweep:
    """One pass over a graph. All attributes from `stopped` on are results.

    Attributes:
        seeds: transposes and layout changes that start messages.
        raised: operands to transpose before their readers, which then read them in the old order.
        wish: requested layout of each operator over images.
        stopped: reason and place at which the message of each node ended.
        refused: reason why a node does not get the requested layout.
        converted: nodes that do, with their old and new layout.
        made: reordered values.
        reached: pairs (origin of a message, node that it has reached).
        messages: values that were in another order after their node.
        taken: transposes and layout changes that became messages, or parts of messages.
    """

    graph: Graph
    seeds: Collection[Node] = ()
    manner: SweepPolicy = field(default_factory=SweepPolicy)
    raised: Raised = field(default_factory=dict[tuple[Node, int], tuple[int, ...]])
    wish: Wish | None = None
    stopped: dict[Node, str] = field(default_factory=dict[Node, str])
    refused: dict[Node, str] = field(default_factory=dict[Node, str])
    converted: dict[Node, str] = field(default_factory=dict[Node, str])
    made: SweepResults = field(default_factory=SweepResults)
    reached: list[tuple[Node, Node]] = field(default_factory=list[tuple[Node, Node]])
    messages: set[Value] = field(default_factory=set[Value])
    taken: set[Node] = field(default_factory=set[Node])

    def __post_init__(self) -> None:
        self.seeds = dict.fromkeys(self.seeds)

    def run(self) -> Graph:
        """Return the graph after all messages have travelled; the same graph if there were none."""
        return forward_rewrite(self.graph, self.visit)

    def visit(self, site: RewriteSite[None]) -> Operand | None:
        """Visit one node of the rewrite."""
        start = len(site.builder.nodes)
        operands = (site.replaced.get(value) for value in site.node.operands)
        self.reached += [(operand.origin, site.node) for operand in operands if isinstance(operand, Arranged)]
        answer = self._answered(site)
        self.made.own(site.builder, start, site.node)
        if isinstance(answer, Arranged):
            self.reached.append((answer.origin, site.node))
            self.messages.add(site.node.output)
        if answer is not None and moves(site.node.op):
            self.taken.add(site.node)
        return answer

    def _answered(self, site: RewriteSite[None]) -> Operand | None:
        node = site.node
        wanted = self.wish(node) if self.wish is not None and layout_of(node.op) is not None else None
        if wanted not in (None, layout_of(node.op)):
            assert wanted is not None
            return self._convert(site, wanted)
        if (moves(node.op) or isinstance(node.op, Reshape)) and not node.epilogue:
            return self._movement(site)
        return self._passed(site)

    def _movement(self, site: RewriteSite[None]) -> Operand | None:
        """Start a message, or continue it in another order."""
        node, operand = site.node, site.inputs[0]
        value = node.inputs[0]
        assert value is not None and operand is not None
        message = operand if isinstance(operand, Arranged) else None
        if (message is None and node not in self.seeds) or not _can_travel(value.type):
            return None
        step = arrangement_of(node.op, value.type.shape)
        source, whole = site.builder.value(operand) if message is None else message.source, step
        if message is not None:
            joined = message.arrangement.then(step)
            if joined is None:
                self._stop(message, node, "the two orders have no common factors")
                source = site.builder.value(operand)
            else:
                whole = joined
        name, type = node.output.name, node.output.type
        if whole.is_view:
            return put_in_order(site.builder, source, whole, type.shape, name, self.made)
        origin = message.origin if message is not None and not moves(node.op) else node
        return Arranged(source, whole, type, name, origin, self.made)

    def _passed(self, site: RewriteSite[None]) -> Operand | None:
        """Let a message reach a node that does not reorder elements."""
        place = ReorderedNode(site, self._inputs(site), self.manner, self.made)
        messages = [operand for operand in place.inputs if isinstance(operand, Arranged)]
        if not messages:
            return None
        answer = self._answer(place, messages)
        if not isinstance(answer, str):
            return answer
        for message in messages:
            self._stop(message, site.node, answer)
        return None

    def _answer(self, place: ReorderedNode, messages: list[Arranged]) -> Operand | str:
        node = place.node
        if len(node.outputs) != 1:
            return "it has several results"
        if any(step.operands for step in node.epilogue):
            return "its epilogue has operands"
        if not _can_travel(place.out):
            return "its result has no elements, or a scale for each channel"
        if place.out.size > max(message.type.size for message in messages):
            self.made.choices.add("grow")
            if not self.manner.grow:
                return "its result is larger than its operand"
        rule = rule_of(node.op)
        return rule(place) if rule is not None else "its result depends on the order of its operands"

    def _inputs(self, site: RewriteSite[None]) -> tuple[Operand | None, ...]:
        """Return the node's inputs, with the requested ones transposed."""
        inputs = list(site.inputs)
        for index, operand in enumerate(inputs):
            permutation = self.raised.get((site.node, index))
            if permutation is None or operand is None or site.array(site.node.inputs[index]) is not None:
                continue
            value = site.node.inputs[index]
            assert value is not None
            step = Arrangement(value.type.shape, permutation)
            shape = tuple(value.type.shape[axis] for axis in permutation)
            source, whole = site.builder.value(operand), step
            if isinstance(operand, Arranged):
                joined = operand.arrangement.then(step)
                if joined is not None:
                    source, whole = operand.source, joined
            turned = put_in_order(site.builder, source, whole, shape, value.name, self.made)
            inputs[index] = Arranged(turned, step.inverse, value.type, value.name, site.node, self.made)
        return tuple(inputs)

    def _convert(self, site: RewriteSite[None], wanted: str) -> Operand | None:
        """Return the result of a node over images that is converted to another layout."""
        node, given = site.node, layout_of(site.node.op)
        value, operand = node.inputs[0], site.inputs[0]
        assert value is not None and operand is not None and given is not None
        if any(step.operands for step in node.epilogue) or not _can_travel(value.type):
            self.refused[node] = "its epilogue has operands, or its image no elements"
            return None
        try:
            there = LayoutTransform(given, wanted)
            shape = layouts.between(given, wanted, value.type.shape).shape
            back = LayoutTransform(wanted, given)
            layouts.between(given, wanted, node.output.type.shape)
        except TypeRuleError as error:
            self.refused[node] = str(error)
            return None
        image = self._in_order(site, operand, there, value.type.shape, shape)
        rest = [site.value(index) for index in range(1, len(node.inputs))]
        source = site.emit(with_layout(node.op, wanted), image, *rest, epilogue=site.epilogue)[0]
        self.converted[node] = f"{given} to {wanted}"
        order = arrangement_of(back, source.type.shape)
        type, name = node.output.type, node.output.name
        if order.is_view:
            return put_in_order(site.builder, source, order, type.shape, name, self.made)
        spelling = back if layouts.is_blocked(given) or layouts.is_blocked(wanted) else None
        return Arranged(source, order, type, name, node, self.made, spelling)

    def _in_order(
        self, site: RewriteSite[None], operand: Operand, step: LayoutTransform, given: Shape, shape: Shape
    ) -> Operand:
        """Return the image in the other layout."""
        order = arrangement_of(step, given)
        name = site.node.operands[0].name
        blocked = layouts.is_blocked(step.source) or layouts.is_blocked(step.target)
        if isinstance(operand, Arranged):
            joined = operand.arrangement.then(order)
            if joined is not None and (joined.is_view or not blocked):
                return put_in_order(site.builder, operand.source, joined, shape, name, self.made)
        source = site.builder.value(operand)
        if order.is_view or not blocked:
            return put_in_order(site.builder, source, order, shape, name, self.made)
        key = (source, order.simplified(), shape)
        if key not in self.made.values:
            self.made.values[key] = site.builder.emit(step, [source], [name])[0]
        return self.made.values[key]

    def _stop(self, message: Arranged, node: Node, reason: str) -> None:
        self.stopped.setdefault(message.origin, f"{describe(node)}: {reason}")


def run_side_by_side(graph: Graph, sweeps: Mapping[Node, Sweep]) -> Graph:
    """Run several sweeps at once, each over its own nodes. Messages end at the nodes of another sweep.

    Args:
        sweeps: sweep of each node. No node of one sweep reads a result of another sweep's nodes.
    """

    def visit(site: RewriteSite[None]) -> Operand | None:
        sweep = sweeps.get(site.node)
        return sweep.visit(site) if sweep is not None else None

    return forward_rewrite(graph, visit)


def rule_of(op: Op) -> Rule | None:
    """Return the rule of an operator, or None."""
    found = next((RULES[base] for base in type(op).__mro__ if base in RULES), None)
    return elementwise if found is None and is_elementwise(op) else found


def _can_travel(type: TensorType) -> bool:
    """Return whether a value may be reordered: it has elements, and at most one scale."""
    return type.size > 0 and (type.quant is None or type.quant.axis is None)
