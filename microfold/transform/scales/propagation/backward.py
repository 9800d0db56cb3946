"""Backward propagation: messages travel from their source to the producers of its operand.

Every reader requests a factor (or a summand) for a value, its wish. If all readers of a value agree, its
producer is asked to provide it. The producer passes the wish on to its operands, or applies it to its
constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.types import DType
from microfold.passes.context import PassContext
from microfold.transform.scales.propagation.message import Message, agree, describe, equal
from microfold.transform.scales.propagation.plan import Planner, first_names, fold, listed, named
from microfold.transform.scales.propagation.rule import MessageKind, Messages

# A reader and its wish. An output or state of the graph counts as a reader without node and wish.
Wish = tuple[Node | None, Message | None]


def fold_backward(graph: Graph, kind: MessageKind, context: PassContext) -> Graph:
    """Fold messages into the nodes before them; return the same graph if none can be folded."""
    return fold(graph, kind, context, _Backward)


class _Backward(Planner):
    backward = True

    def __init__(self, graph: Graph, kind: MessageKind):
        super().__init__(graph, kind)
        self.answers: dict[Node, Messages] = {}
        # Values without producer whose wishes have changed.
        self.given: dict[Value, None] = {}
        self._found: dict[Node, Mapping[Value, Sequence[int]]] = {}

    def visit(self, node: Node) -> None:
        self.forget(node)
        wanted = None
        for value in node.outputs:
            agreed = self._agreed(value)
            self.set_message(value, agreed)
            wanted = agreed if agreed is not None else wanted
        answer = self._answer(node, wanted)
        old = self.answers.get(node, (None,) * len(node.inputs))
        self.answers[node] = answer
        for value, before, after in zip(node.inputs, old, answer):  # noqa: B905 (absent ones come last)
            if value is not None and not equal(before, after):
                self.touch(self.producers.get(value))
                if value not in self.producers and value not in self.graph.constants:
                    self.given[value] = None

    def after_sweep(self) -> None:
        for value in self.given:
            if any(message is not None for _, message in self._wishes(value)):
                self.block(value, f"no node computes %{value.name}")
        self.given.clear()

    def _wishes(self, value: Value) -> list[Wish]:
        """Return all wishes for a value, from its last reader to its first."""
        wishes: list[Wish] = [(None, None)] if value in self.ends else []
        for node in dict.fromkeys(reversed(self.readers.get(value, ()))):
            answer = self.answers.get(node)
            for index in self._operands(node).get(value, ()):
                # Absent operands come last, and answers may omit them.
                if answer is None or index < len(answer):
                    wishes.append((node, answer[index] if answer is not None else None))
            wishes += [
                (node, None) for step in node.epilogue for operand in step.operands if operand is value
            ]
        return wishes

    def _operands(self, node: Node) -> Mapping[Value, Sequence[int]]:
        """Return the input indices of each value, from a cache: a node may have very many inputs."""
        if node not in self._found:
            found: dict[Value, list[int]] = {}
            for index, value in enumerate(node.inputs):
                if value is not None:
                    found.setdefault(value, []).append(index)
            self._found[node] = found
        return self._found[node]

    def _agreed(self, value: Value) -> Message | None:
        """Return the wish of all readers; block the value and return None if they disagree."""
        if value in self.blocked:
            return None
        wishes = self._wishes(value)
        messages = [message for _, message in wishes if message is not None]
        if not messages:
            return None
        if value.type.dtype is not DType.FLOAT32:
            self.block(value, f"%{value.name} is {value.type.dtype.value}")
            return None
        for reader, message in wishes:
            if message is None:
                what = f"{named(reader)} reads" if reader is not None else "the graph returns"
                self.block(value, f"{what} %{value.name} without this {self.kind.name}")
            elif not agree(message, messages[0]):
                given = " and ".join(describe(other) for other in (messages[0], message))
                self.block(value, f"the readers of %{value.name} want different {self.kind.name}s: {given}")
        return messages[0] if value not in self.blocked else None

    def _answer(self, node: Node, wanted: Message | None) -> Messages:
        """Return the node's wishes for its operands."""
        nothing: Messages = (None,) * len(node.inputs)
        source = self.source(node)
        if source is not None:
            operand = node.inputs[source.operand]
            assert operand is not None
            if operand not in self.blocked:
                message = source.message if wanted is None else self.kind.compose(source.message, wanted)
                self.plan.sources[node] = source
                return [message if index == source.operand else None for index in range(len(node.inputs))]
        if wanted is None:
            return nothing
        reply = self._reply(node, wanted)
        if isinstance(reply, str):
            self.block(node.outputs[0], reply)
            return nothing
        self.plan.applied[node] = reply
        return reply

    def _reply(self, node: Node, wanted: Message) -> Messages | str:
        rule = self.rule(node)
        if isinstance(rule, str):
            return rule
        refusal = self.sign_refusal(node, rule, wanted) or self.epilogue_refusal(node, wanted)
        if refusal is not None:
            return refusal
        reply = rule.backward(self.place(node), wanted)
        if isinstance(reply, str):
            return f"{named(node)}: {reply}"
        for value, message in zip(node.inputs, reply):  # noqa: B905 (absent ones come last)
            if value is not None and message is not None and value in self.blocked:
                return self.blocked[value]
        return self.constant_refusal(node, reply) or reply

    def explain(self, context: PassContext) -> None:
        plan, remainders = self.plan, self._rests()
        for node in self.graph.nodes:
            source = self.source(node)
            if source is None:
                continue
            operand = node.inputs[source.operand]
            assert operand is not None
            if node in plan.sources:
                ends = listed(remainders[operand])
                context.fired(node, f"its {self.kind.name} {describe(source.message)} goes into {ends}")
            elif not plan.sources:  # the next round may still succeed
                context.declined(node, self.blocked[operand])

    def _rests(self) -> dict[Value, list[str]]:
        """Return the nodes whose constants take the message, for each value with a message."""
        plan = self.plan
        remainders: dict[Value, list[str]] = {}
        for node in self.graph.nodes:
            if node in plan.sources:
                operand = node.inputs[plan.sources[node].operand]
                assert operand is not None
                remainders[node.output] = remainders[operand]
            elif node in plan.applied:
                pairs = zip(node.inputs, plan.applied[node])  # noqa: B905 (absent ones come last)
                further = [
                    remainders[value]
                    for value, message in pairs
                    if message is not None and value in plan.messages
                ]
                remainders[node.output] = first_names(further) or [named(node)]
        return remainders
