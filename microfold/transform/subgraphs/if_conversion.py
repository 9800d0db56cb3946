"""Runs both branches of a condition, and chooses between their results.

    %y: int8[4] = if(%c, %x) {then="f", otherwise="h"}
        ->
    %a: int8[4] = call(%x) {body="f", ...}
    %b: int8[4] = call(%x) {body="h", ...}
    %y: int8[4] = select(%c, %a, %b)

For conditions that the model computes: those that constants decide are `partial_evaluate`'s, before this
pass. `inline` then puts the branches in place. Branches have no effects, so that both may run, and every bit
stays; the price is the time of both. Where that is not small, with products or loops, the condition stays,
and one of the branches runs.
"""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ops.control.call import Call
from microfold.ops.control.control_flow import If, While
from microfold.ops.elementwise.select import Select
from microfold.ops.movement.reshape import Reshape
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=0, mandatory=True)
def if_conversion(graph: Graph, context: PassContext) -> Graph:
    """Replace conditions by calls of both branches."""

    def convert(site: RewriteSite[None]) -> list[Value] | None:
        op, node = site.node.op, site.node
        assert isinstance(op, If)
        condition = site.value(0)
        assert condition is not None
        if node.epilogue:
            context.declined(node, "it has an epilogue")
            return None
        for name in op.bodies:
            reason = _too_much(graph.subgraphs[name])
            if reason:
                context.declined(node, f"@{name} {reason}")
                return None
        builder, names = site.builder, [value.name for value in node.outputs]
        if condition.type.rank:
            (condition,) = builder.emit(Reshape(()), [condition], [condition.name])
        branches = [builder.emit(Call(name, op.results), site.inputs[1:], names) for name in op.bodies]
        context.fired(node, f"both @{op.then} and @{op.otherwise} run")
        return [
            builder.emit(Select(), [condition, *pair], [name])[0]
            for name, *pair in zip(names, *branches, strict=True)
        ]

    return forward_rewrite(graph, {If: convert})


def _too_much(body: Graph) -> str:
    """Why a branch should only run where it is asked for; empty if it may."""
    macs = sum(node.macs() for node in body.nodes)
    if macs:
        return f"has {macs} products"
    inner = [node.op for node in body.nodes if node.op.bodies]
    if any(isinstance(op, While | If) for op in inner):
        return "has a loop or a condition that stays"
    return ""
