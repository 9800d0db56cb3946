"""Merges adjacent reshapes, and removes reshapes that change nothing.

    %a: int8[8] = reshape(%x) {shape=(8,)}
    %b: int8[1,8] = reshape(%a) {shape=(1, 8)}          ->   %y: int8[4,2] = reshape(%x) {shape=(4, 2)}
    %y: int8[4,2] = reshape(%b) {shape=(4, 2)}

A reshape is free, but it can hide that the operators around it could be merged. All bits stay the same.
"""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ops.movement.reshape import Reshape
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=0)
def remove_redundant_reshape(graph: Graph, context: PassContext) -> Graph:
    """Let each reshape read the value before the reshapes above it."""

    def merge(site: RewriteSite[None]) -> Value | tuple[Value, ...] | None:
        node, source = site.node, site.value(0)
        assert isinstance(node.op, Reshape)
        assert source is not None
        if node.epilogue:
            context.declined(node, "it has an epilogue")
            return None
        inner = site.producer(0)
        if inner is not None and isinstance(inner.op, Reshape) and not inner.epilogue:
            (source,) = (value for value in inner.inputs if value is not None)
        if source.type.shape == node.op.shape:
            context.fired(node, f"its operand has the shape {node.op.shape}")
            return source
        if source is site.value(0):
            context.declined(node, f"its operand has the shape {source.type.shape}, and is no reshape")
            return None
        assert inner is not None
        context.fired(node, f"a reshape of reshape %{inner.output.name}")
        return site.emit(node.op, source)

    return forward_rewrite(graph, {Reshape: merge})
