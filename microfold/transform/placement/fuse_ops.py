"""Fuses elementwise operators into the epilogue of their operand's producer.

    %a: int8[1,8,8,4] = conv2d(%x, %w, %b) {...}
    %y: int8[1,8,8,4] = clip(%a) {minimum=0.0, maximum=6.0}
        ->
    %y: int8[1,8,8,4] = conv2d(%x, %w, %b) {...} | clip() {minimum=0.0, maximum=6.0}

The intermediate value must have no other reader. A table over `Pattern` and the given rule decide which pairs
may be fused. If the kernels of the target are known (`PassContext.node_cost`), one of them must also compute
the fused node. It must need at most as many cycles as separate kernels for the two nodes.

Only some kernels compute a byte function after a product sum, with a table. The pass fuses these functions
only if the target's kernels are known, and if the fused kernel is faster and needs no more scratch memory. If
flash is short, it does not fuse them, because the fused kernel is a separate function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, Node, Value, make_node
from microfold.ir.op import Op, Pattern
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ir.types import DType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.passes.context import MAX_OPT_LEVEL, PassContext
from microfold.passes.decorators import function_pass

# Patterns that may follow each pattern in an epilogue: elementwise steps on a value that was just computed.
FUSABLE: Mapping[Pattern, frozenset[Pattern]] = {
    Pattern.OUT_ELEMENTWISE_FUSABLE: frozenset({Pattern.ELEMENTWISE}),
    Pattern.BROADCAST: frozenset({Pattern.ELEMENTWISE}),
}


def takes_clip(producer: Node) -> bool:
    """Return whether a clip may follow in the epilogue of a node. Kernels decide whether it does."""
    return Pattern.ELEMENTWISE in FUSABLE.get(producer.op.pattern, frozenset())


def with_step(producer: Node, step: EpilogueStep, name: str, steps: Sequence[EpilogueStep] = ()) -> Node:
    """Return the producer with `step` and then `steps` appended to its epilogue.

    Args:
        name: name of the result.
    """
    return make_node(producer.op, producer.inputs, [name], (*producer.epilogue, step, *steps))


def not_computed(producer: Node, node: Node, graph: Graph, context: PassContext) -> str | None:
    """Return the reason if kernels compute a producer alone, but none computes it fused.

    Args:
        node: producer with one more step in its epilogue.
        graph: graph of the constants that the nodes read.
    """
    cost = context.node_cost
    if cost is None or cost(node, graph) is not None or cost(producer, graph) is None:
        return None
    return f"no kernel of the target computes {node.op.name} with it"


FusionRule = Callable[[Node, Op], "str | None"]


def only_clip(producer: Node, step: Op) -> str | None:
    """Allow clips, which most kernels apply to their results."""
    return None if isinstance(step, Clip) else f"{producer.op.name} kernels cannot run {step.name}"


def table_behind_sum(producer: Node, step: Op) -> str | None:
    """Allow int8 functions after product sums, for which some kernels have an output table."""
    x = producer.outputs[0].type
    if not isinstance(producer.op, Conv2D | DepthwiseConv2D | FullyConnected) or x.dtype is not DType.INT8:
        return f"{producer.op.name} kernels cannot run {step.name}"
    out = step.infer_all([x])[0]
    if out.dtype is not DType.INT8:
        return f"{producer.op.name} kernels look up int8; {step.name} computes {out.dtype.value}"
    return None


@function_pass(opt_level=1)
class FuseOps(Struct, frozen=True):
    """Fusion of elementwise operators into their producers.

    Attributes:
        may_fuse: returns why a step must not be in a producer's epilogue, or None if it may.
        may_win: like `may_fuse`, for the steps that it refuses; these are fused only if that is known to be
            cheaper.
        fuse_opt_level: 0: fuse nothing; 1 and more: fuse; -1: only the level of the context decides whether
            this pass runs.

    Raises:
        InputError: `fuse_opt_level` is out of range.
    """

    may_fuse: FusionRule = only_clip
    may_win: FusionRule = table_behind_sum
    fuse_opt_level: int = -1

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        if not -1 <= self.fuse_opt_level <= MAX_OPT_LEVEL:
            raise InputError(f"fuse_opt_level must be -1 to {MAX_OPT_LEVEL}; got {self.fuse_opt_level}")
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
            step = EpilogueStep(node.op, tuple(value for value in extra if value is not None))
            both = with_step(producer, step, node.output.name, site.epilogue)
            reason = not_computed(producer, both, graph, context)
            reason = reason or _dearer(graph, (producer, node), both, context, must_win=must_win)
            if reason is None and must_win:
                reason = _larger(graph, producer, both, context)
            if reason is not None:
                context.declined(node, reason)
                return None
            context.fired(node, f"into {producer.op.name} %{producer.output.name}")
            return site.emit(producer.op, *producer.inputs, epilogue=both.epilogue)

        return forward_rewrite(graph, fuse)

    def _why_not(self, site: RewriteSite[None], producer: Node) -> str | None:
        node = site.node
        if len(producer.outputs) != 1 or len(node.outputs) != 1:
            return "nodes with several results are not fused"
        if node.op.pattern not in FUSABLE.get(producer.op.pattern, frozenset()):
            return f"{producer.op.name} has no epilogue: its pattern is {producer.op.pattern.name.lower()}"
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
    """Return the reason if two nodes need fewer cycles separately than fused.

    Args:
        apart: producer of the operand, and the node of the step.
        must_win: whether the fused node must be strictly faster; an unknown cost is then also a reason.
    """
    cost = context.node_cost
    if cost is None:
        return None
    together = cost(fused, graph)
    each = [found for found in (cost(node, graph) for node in apart) if found is not None]
    if together is None or len(each) < len(apart):
        return f"no kernel of the target is known for {fused.op.name} with it" if must_win else None
    fuse = together < sum(each) or (together == sum(each) and not must_win)
    if together > each[0]:  # otherwise the step would be free
        best = "fused" if fuse else "apart"
        taken = context.choose(fused, best, lambda: {"fused": together, "apart": sum(each)})
        if taken != best:
            return None if taken == "fused" else "separate kernels were measured to be faster"
    if fuse:
        return None
    return f"fused: about {together:.0f} cycles; separate: {sum(each):.0f}"


def _larger(graph: Graph, producer: Node, fused: Node, context: PassContext) -> str | None:
    """Return the reason if a step increases the memory that a node needs."""
    if context.save_flash:
        return "flash is short: the fused kernel would be a separate function"
    scratch = context.node_scratch
    own, alone = (scratch(node, graph) for node in (fused, producer)) if scratch is not None else (None, None)
    if own is None or alone is None or own <= alone:
        return None
    return f"fused: {own:.0f} bytes of scratch; separate: {alone:.0f}"
