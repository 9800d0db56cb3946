"""Converts conditions into selects: both branches run, and the condition selects a result.

    %y: int8[4] = if(%c, %x) {then="f", otherwise="h"}
        ->
    %a: int8[4] = call(%x) {body="f", ...}
    %b: int8[4] = call(%x) {body="h", ...}
    %y: int8[4] = select(%c, %a, %b)

The pass is for conditions that the model computes; `partial_evaluate` resolves constant conditions before.
`inline` then replaces the calls by the branches. Branches have no effects, so both may run, and all bits
stay the same. The cost is the time of both branches. If a branch has products or loops, the condition stays,
and only one branch runs.
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
    """Replace conditions by calls of both branches and selects."""

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
    """Return why a branch is too expensive to run always; empty if it is not."""
    macs = sum(node.macs() for node in body.nodes)
    if macs:
        return f"has {macs} products"
    inner = [node.op for node in body.nodes if node.op.bodies]
    if any(isinstance(op, While | If) for op in inner):
        return "has a loop or a condition that stays"
    return ""
