"""Folds products with constants into the weights before them.

    %a: float32[1,8,8,4] = conv2d(%x, %w, %b) {...}
    %r: float32[1,8,8,4] = clip(%a) {minimum=0.0, maximum=inf}
    %y: float32[1,8,8,4] = mul(%r, %s)
        ->
    %a: float32[1,8,8,4] = conv2d(%x, %ws, %bs) {...}
    %r: float32[1,8,8,4] = clip(%a) {minimum=0.0, maximum=inf}

The scale travels against the dataflow, through operators that commute with it, to weights, biases and other
constants that can take it. All readers of a value must want the same scale. A product that cannot be folded
absorbs the scales of the products after it.

The pass changes floating-point graphs only. The weights are rounded again, so that results differ in the last
digits. Exact numerics admit that, because they promise the same bits only for quantised values.
"""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.scales.propagation.backward import fold_backward
from microfold.transform.scales.propagation.kinds import SCALE


@function_pass(opt_level=3)
def backward_fold_scale_axis(graph: Graph, context: PassContext) -> Graph:
    """Fold scales into the nodes that compute their operands."""
    return fold_backward(graph, SCALE, context)
