"""Puts elementwise operators into the epilogue of the node that computes their operand.

    %a: int8[1,8,8,4] = conv2d(%x, %w, %b) {...}
    %y: int8[1,8,8,4] = clip(%a) {minimum=0.0, maximum=6.0}
        ->
    %y: int8[1,8,8,4] = conv2d(%x, %w, %b) {...} | clip() {minimum=0.0, maximum=6.0}

The intermediate value must have no other reader. Which pairs can be fused in principle is a table over
`Pattern`; which of them kernels can run is the rule handed in. Where the kernels of the target are known
(`PassContext.node_cost`), a step stays alone if what computes both is dearer than one kernel for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Step, Value, make_node
from microfold.ir.op import Op, Pattern
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ops.elementwise.activations.clip import Clip
from microfold.passes.context import NodeCost, PassContext
from microfold.passes.decorators import function_pass

# What may follow in the epilogue of what: elementwise steps on a value that is just computed.
FUSABLE: Mapping[Pattern, frozenset[Pattern]] = {
    Pattern.OUT_ELEMENTWISE_FUSABLE: frozenset({Pattern.ELEMENTWISE}),
    Pattern.BROADCAST: frozenset({Pattern.ELEMENTWISE}),
}


def takes_clip(producer: Node) -> bool:
    """Whether a clip may follow in the epilogue of a node."""
    return Pattern.ELEMENTWISE in FUSABLE.get(producer.op.pattern, frozenset())


FusionRule = Callable[[Node, Op], "str | None"]


def only_clip(producer: Node, step: Op) -> str | None:
    """Every kernel clamps its result; none has another epilogue."""
    return None if isinstance(step, Clip) else f"{producer.op.name} kernels cannot run {step.name}"


@function_pass(opt_level=1)
@dataclass(frozen=True)
class FuseOps:
    """Fuse elementwise operators into their producers.

    Attributes:
        may_fuse: refuses a step in a producer's epilogue with a reason, or returns None.
    """

    may_fuse: FusionRule = only_clip

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        def fuse(site: RewriteSite[None]) -> tuple[Value, ...] | None:
            node, producer = site.node, site.producer(0)
            if node.op.pattern is not Pattern.ELEMENTWISE:
                return None
            if producer is None:
                context.declined(node, "no node computes its operand")
                return None
            reason = self._why_not(site, producer)
            if reason is not None:
                context.declined(node, reason)
                return None
            extra = [site.value(index) for index in range(1, len(node.inputs))]
            step = Step(node.op, tuple(value for value in extra if value is not None))
            steps = (*producer.epilogue, step, *site.epilogue)
            fused = make_node(producer.op, producer.inputs, [node.output.name], steps)
            reason = _dearer(graph, (producer, node), fused, context.node_cost)
            if reason is not None:
                context.declined(node, reason)
                return None
            context.fired(node, f"into {producer.op.name} %{producer.output.name}")
            return site.emit(producer.op, *producer.inputs, epilogue=steps)

        return forward_rewrite(graph, fuse)

    def _why_not(self, site: RewriteSite[None], producer: Node) -> str | None:
        node = site.node
        if len(producer.outputs) != 1 or len(node.outputs) != 1:
            return "a node with several results is not fused"
        if node.op.pattern not in FUSABLE.get(producer.op.pattern, frozenset()):
            return f"{producer.op.name} takes no epilogue: its pattern is {producer.op.pattern.name.lower()}"
        if producer.op.has_effect or node.op.has_effect:
            return "it has an effect"
        if not site.is_only_reader(0):
            return f"%{producer.output.name} has other readers"
        if None in node.inputs:
            return "an operand is absent"
        return self.may_fuse(producer, node.op)


def _dearer(graph: Graph, apart: tuple[Node, ...], fused: Node, cost: NodeCost | None) -> str | None:
    """The reason if nodes take fewer instructions apart than as one."""
    if cost is None:
        return None
    together = cost(fused, graph)
    each = [found for found in (cost(node, graph) for node in apart) if found is not None]
    if together is None or len(each) < len(apart) or together <= sum(each):
        return None
    return f"in the epilogue it would take about {together:.0f} instructions; apart they take {sum(each):.0f}"
