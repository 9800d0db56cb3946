"""Forward propagation: messages travel from their source to the readers of its result.

When a source is removed, its readers get a value that lacks the message. Each reader compensates for it in
its constants, or has a result that also lacks a message. All readers must be able to do one of the two.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.passes.context import PassContext
from microfold.transform.scales.propagation.message import Message, describe
from microfold.transform.scales.propagation.plan import Planner, first_names, fold, listed, named
from microfold.transform.scales.propagation.rule import MessageKind, Messages


def fold_forward(graph: Graph, kind: MessageKind, context: PassContext) -> Graph:
    """Fold messages into the nodes after them; return the same graph if none can be folded."""
    return fold(graph, kind, context, _Forward)


class _Forward(Planner):
    backward = False

    def __init__(self, graph: Graph, kind: MessageKind):
        super().__init__(graph, kind)
        for value in self.ends:
            self.block(value, f"%{value.name} leaves the graph")

    def visit(self, node: Node) -> None:
        self.forget(node)
        lacking = self._lacking(node)
        for value in node.outputs:
            if self.set_message(value, lacking if value is node.outputs[0] else None):
                for reader in self.readers.get(value, ()):
                    self.touch(reader)

    def _lacking(self, node: Node) -> Message | None:
        """Return the message that the first result of a node will lack."""
        plan = self.plan
        offered = [plan.messages.get(value) if value is not None else None for value in node.inputs]
        source = self.source(node)
        if source is not None and node.output not in self.blocked:
            before = offered[source.operand]
            plan.sources[node] = source
            return source.message if before is None else self.kind.compose(before, source.message)
        self._refuse_in_epilogue(node)
        if all(message is None for message in offered):
            return None
        reply = self._reply(node, offered)
        if isinstance(reply, str):
            for value, message in zip(node.inputs, offered, strict=True):
                if value is not None and message is not None:
                    self.block(value, reply)
            return None
        lacking, plan.applied[node] = reply
        return lacking

    def _refuse_in_epilogue(self, node: Node) -> None:
        for step in node.epilogue:
            for value in step.operands:
                if value in self.plan.messages:
                    self.block(value, f"{step.op.name} in the epilogue of {named(node)} reads it")

    def _reply(self, node: Node, offered: Messages) -> tuple[Message | None, Messages] | str:
        rule = self.rule(node)
        if isinstance(rule, str):
            return rule
        for message in offered:
            refusal = self.sign_refusal(node, rule, message) if message is not None else None
            if refusal is not None:
                return refusal
        reply = rule.forward(self.place(node), offered)
        if isinstance(reply, str):
            return f"{named(node)}: {reply}"
        lacking, applied = reply
        refusal = self.constant_refusal(node, applied)
        if refusal is not None:
            return refusal
        if lacking is None or bool(np.all(lacking == self.kind.neutral)):
            return None, applied
        return self.epilogue_refusal(node, lacking) or self.blocked.get(node.outputs[0]) or (lacking, applied)

    def explain(self, context: PassContext) -> None:
        plan, remainders = self.plan, self._rests()
        for node in self.graph.nodes:
            source = self.source(node)
            if source is None:
                continue
            if node in plan.sources:
                ends = listed(remainders[node.output])
                context.fired(node, f"its {self.kind.name} {describe(source.message)} goes into {ends}")
            elif not plan.sources:  # the next round may still succeed
                context.declined(node, self.blocked[node.output])

    def _rests(self) -> dict[Value, list[str]]:
        """Return the nodes whose constants take the message, for each value that lacks a message."""
        remainders: dict[Value, list[str]] = {}
        for node in reversed(self.graph.nodes):
            if any(value in self.plan.messages for value in node.outputs):
                readers = self.readers[node.output]
                remainders[node.output] = first_names(
                    remainders.get(r.outputs[0]) or [named(r)] for r in readers
                )
        return remainders
