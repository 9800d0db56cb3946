"""Puts elementwise operators into the epilogue of the node that computes their operand.

    %a: int8[1,8,8,4] = conv2d(%x, %w, %b) {...}
    %y: int8[1,8,8,4] = clip(%a) {minimum=0.0, maximum=6.0}
        ->
    %y: int8[1,8,8,4] = conv2d(%x, %w, %b) {...} | clip() {minimum=0.0, maximum=6.0}

The intermediate value must have no other reader. Which pairs can be fused in principle is a table over
`Pattern`; which of them kernels can run is the rule handed in. Where the kernels of the target are known
(`PassContext.node_cost`), a step stays alone if what computes both is dearer than one kernel for each.

Functions of a byte behind a product sum, which a table computes, only some kernels can run: they are fused
only where the target's are known, and one for both is cheaper and takes no more scratch; not where flash is
to be spared, since it is another function than that of sums alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Step, Value, make_node
from microfold.ir.op import Op, Pattern
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ir.types import DType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.passes.context import MAX_OPT_LEVEL, PassContext
from microfold.passes.decorators import function_pass
from microfold.support.frozen import frozen

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
    """Every kernel clamps its result."""
    return None if isinstance(step, Clip) else f"{producer.op.name} kernels cannot run {step.name}"


def table_behind_sum(producer: Node, step: Op) -> str | None:
    """Some kernels of int8 product sums look their outputs up in a table."""
    x = producer.outputs[0].type
    if not isinstance(producer.op, Conv2D | DepthwiseConv2D | FullyConnected) or x.dtype is not DType.INT8:
        return f"{producer.op.name} kernels cannot run {step.name}"
    out = step.infer_all([x])[0]
    if out.dtype is not DType.INT8:
        return f"{producer.op.name} kernels look up int8; {step.name} computes {out.dtype.value}"
    return None


@function_pass(opt_level=1)
@frozen
class FuseOps:
    """Fuse elementwise operators into their producers.

    Attributes:
        may_fuse: refuses a step in a producer's epilogue with a reason, or returns None.
        may_win: the same for steps that `may_fuse` refuses, and that are fused only where that is known to be
            cheaper.
        fuse_opt_level: 0 fuses nothing, 1 and more fuses; with -1, the level of the context decides alone
            whether this pass runs.

    Raises:
        InputError: `fuse_opt_level` is out of its range.
    """

    may_fuse: FusionRule = only_clip
    may_win: FusionRule = table_behind_sum
    fuse_opt_level: int = -1

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        if not -1 <= self.fuse_opt_level <= MAX_OPT_LEVEL:
            raise InputError(f"fuse_opt_level must be -1 to {MAX_OPT_LEVEL}; it is {self.fuse_opt_level}")
        if self.fuse_opt_level == 0:
            context.declined(f"graph @{graph.name}", "fuse_opt_level 0 fuses nothing")
            return graph

        def fuse(site: RewriteSite[None]) -> tuple[Value, ...] | None:
            node, producer = site.node, site.producer(0)
            if node.op.pattern is not Pattern.ELEMENTWISE:
                return None
            if producer is None:
                context.declined(node, "no node computes its operand")
                return None
            reason, must_win = self._why_not(site, producer), False
            if reason is None:
                reason = self.may_fuse(producer, node.op)
                must_win = reason is not None and context.node_cost is not None and len(node.inputs) == 1
                reason = self.may_win(producer, node.op) if must_win else reason
            if reason is not None:
                context.declined(node, reason)
                return None
            extra = [site.value(index) for index in range(1, len(node.inputs))]
            step = Step(node.op, tuple(value for value in extra if value is not None))
            steps = (*producer.epilogue, step, *site.epilogue)
            fused = make_node(producer.op, producer.inputs, [node.output.name], steps)
            reason = _dearer(graph, (producer, node), fused, context, must_win=must_win)
            if reason is None and must_win:
                reason = _larger(graph, producer, fused, context)
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
        return None


def _dearer(
    graph: Graph, apart: tuple[Node, Node], fused: Node, context: PassContext, *, must_win: bool
) -> str | None:
    """The reason if nodes take fewer cycles apart than as one.

    Args:
        apart: what computes the operand, and the step.
        must_win: nor may they take as many, or cost be unknown.
    """
    cost = context.node_cost
    if cost is None:
        return None
    together = cost(fused, graph)
    each = [found for found in (cost(node, graph) for node in apart) if found is not None]
    if together is None or len(each) < len(apart):
        return f"no kernel of the target is known for {fused.op.name} with it" if must_win else None
    fuse = together < sum(each) or (together == sum(each) and not must_win)
    if together > each[0]:  # else the step costs nothing
        best = "fused" if fuse else "apart"
        taken = context.choose(fused, best, lambda: {"fused": together, "apart": sum(each)})
        if taken != best:
            return None if taken == "fused" else "apart, it was measured to be faster"
    if fuse:
        return None
    return f"in the epilogue it would take about {together:.0f} cycles; apart they take {sum(each):.0f}"


def _larger(graph: Graph, producer: Node, fused: Node, context: PassContext) -> str | None:
    """The reason if a node takes more memory with a step that need not be fused than without it."""
    if context.spare_flash:
        return "flash is to be spared: what computes both is another function"
    scratch = context.node_scratch
    own, alone = (scratch(node, graph) for node in (fused, producer)) if scratch is not None else (None, None)
    if own is None or alone is None or own <= alone:
        return None
    return f"in the epilogue it would take {own:.0f} bytes of scratch; apart they take {alone:.0f}"
