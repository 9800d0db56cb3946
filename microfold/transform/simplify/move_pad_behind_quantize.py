"""Quantises images before they are zero-padded, so that convolutions can do the padding.

%p: float32[1,6,6,3] = pad(%x) {padding=..., fill=0.0}
%q: int16[1,6,6,3], %s: float32[1] = dynamic_quantize(%p)
    ->
%r: int16[1,4,4,3], %s: float32[1] = dynamic_quantize(%x)
%q: int16[1,6,6,3] = pad(%r) {padding=..., fill=0.0}

The bits stay the same: the quantised range always includes 0, and the real 0 is the integer 0. A pad of the
first axis stays, because it adds rows that would have quantisation steps of their own.
"""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ops.elementwise.conversions.dynamic_quantize import DynamicQuantize
from microfold.ops.movement.pad import Pad
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=2)
def move_pad_behind_quantize(graph: Graph, context: PassContext) -> Graph:
    """Let `dynamic_quantize` read the value before its padding."""

    def move(site: RewriteSite[None]) -> tuple[Value, ...] | None:
        node, pad = site.node, site.producer(0)
        if pad is None or not isinstance(pad.op, Pad) or pad.epilogue:
            return None
        if pad.op.fill != 0 or pad.op.padding[0] != (0, 0):
            context.declined(node, f"pad %{pad.output.name} adds rows, or fills with another number than 0")
            return None
        if not site.is_only_reader(0):
            context.declined(node, f"pad %{pad.output.name} has other readers")
            return None
        context.fired(node, f"pad %{pad.output.name} moves after it")
        name, steps_name = (value.name for value in node.outputs)
        emit = site.builder.emit
        values, steps = emit(node.op, [pad.inputs[0]], [f"{name}_unpadded", steps_name])
        return *emit(pad.op, [values], [name]), steps

    return forward_rewrite(graph, {DynamicQuantize: move})
