"""Messages travel from their source towards what computes its operand.

Every reader says what it wishes a value to be multiplied by (or to be added to it). Where all readers of a
value agree, its node is asked to provide it, and passes the wish on to its operands or applies it to its
constants.
"""

from __future__ import annotations

from collections.abc import Sequence

from microfold.ir.graph import Graph, Node, Value
from microfold.ir.types import DType
from microfold.passes import PassContext
from microfold.transform.axis_messages.message import Message, agree, describe
from microfold.transform.axis_messages.plan import Plan, Planner, fold, named
from microfold.transform.axis_messages.rule import Kind, Messages

# A reader and its wish; the reader of an end of the graph has no node, and no wish.
Wish = tuple[Node | None, Message | None]


def fold_backward(graph: Graph, kind: Kind, context: PassContext) -> Graph:
    """Fold what can be folded into operands' nodes; the graph itself if nothing can."""
    return fold(graph, kind, context, _Backward)


class _Backward(Planner):
    def __init__(self, graph: Graph, kind: Kind):
        super().__init__(graph, kind)
        self.producers = graph.producers()

    def sweep(self) -> Plan:
        plan = Plan()
        wishes: dict[Value, list[Wish]] = {value: [(None, None)] for value in self.ends}
        for node in reversed(self.graph.nodes):
            wanted = None
            for value in node.outputs:
                agreed = self._agreed(value, wishes.get(value, []))
                if agreed is not None:
                    plan.messages[value] = wanted = agreed
            for value, message in zip(node.inputs, self._answer(node, wanted, plan)):  # noqa: B905 (ditto)
                if value is not None and value not in self.graph.constants:
                    wishes.setdefault(value, []).append((node, message))
            for step in node.epilogue:
                for value in step.operands:
                    wishes.setdefault(value, []).append((node, None))
        for value in (*self.graph.inputs, *(state.value for state in self.graph.state)):
            if any(message is not None for _, message in wishes.get(value, [])):
                self.block(value, f"no node computes %{value.name}")
        return plan

    def _agreed(self, value: Value, wishes: Sequence[Wish]) -> Message | None:
        """What all readers wish; None, and the value blocked, if they do not agree."""
        messages = [message for _, message in wishes if message is not None]
        if not messages or value in self.blocked:
            return None
        if value.type.dtype is not DType.FLOAT32:
            self.block(value, f"%{value.name} is {value.type.dtype.value}")
            return None
        for reader, message in wishes:
            if message is None:
                what = f"{named(reader)} reads" if reader is not None else "the graph hands out"
                self.block(value, f"{what} %{value.name} without such a {self.kind.name}")
            elif not agree(message, messages[0]):
                given = " and ".join(describe(other) for other in (messages[0], message))
                self.block(value, f"the readers of %{value.name} want different {self.kind.name}s: {given}")
        return messages[0] if value not in self.blocked else None

    def _answer(self, node: Node, wanted: Message | None, plan: Plan) -> Messages:
        """What the node wishes its operands to have."""
        nothing: Messages = (None,) * len(node.inputs)
        source = self.source(node)
        if source is not None:
            operand = node.inputs[source.operand]
            assert operand is not None
            if operand not in self.blocked:
                message = source.message if wanted is None else self.kind.compose(source.message, wanted)
                plan.sources[node] = source
                return [message if index == source.operand else None for index in range(len(node.inputs))]
        if wanted is None:
            return nothing
        reply = self._reply(node, wanted)
        if isinstance(reply, str):
            self.block(node.outputs[0], reply)
            return nothing
        plan.applied[node] = reply
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

    def explain(self, context: PassContext, plan: Plan) -> None:
        for node in self.graph.nodes:
            source = self.source(node)
            if source is None:
                continue
            operand = node.inputs[source.operand]
            assert operand is not None
            if node in plan.sources:
                ends = ", ".join(self._ends(operand, plan))
                context.fired(node, f"its {self.kind.name} {describe(source.message)} goes into {ends}")
            elif not plan.sources:  # the next round may still find a way
                context.declined(node, self.blocked[operand])

    def _ends(self, value: Value, plan: Plan) -> list[str]:
        """The nodes in which a message to this value comes to rest."""
        node = self.producers[value]
        if node in plan.sources:
            operand = node.inputs[plan.sources[node].operand]
            assert operand is not None
            return self._ends(operand, plan)
        ends: list[str] = []
        for operand, message in zip(node.inputs, plan.applied[node]):  # noqa: B905 (absent ones come last)
            if operand is not None and message is not None and operand in plan.messages:
                ends += self._ends(operand, plan)
        return list(dict.fromkeys(ends)) or [named(node)]
