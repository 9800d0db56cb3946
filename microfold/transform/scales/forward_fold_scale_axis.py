"""Folds products with constants into the weights after them.

    %a: float32[1,8,8,4] = mul(%x, %s)
    %r: float32[1,8,8,4] = clip(%a) {minimum=0.0, maximum=inf}
    %y: float32[1,8,8,8] = conv2d(%r, %w, %b) {...}
        ->
    %r: float32[1,8,8,4] = clip(%x) {minimum=0.0, maximum=inf}
    %y: float32[1,8,8,8] = conv2d(%r, %sw, %b) {...}

The scale travels with the dataflow, through operators that commute with it, to the inputs of weights. All
readers of the product must be able to take it. A constant that is added on the way is divided by the scale.

The pass changes floating-point graphs only, as `backward_fold_scale_axis` does.
"""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.scales.propagation.forward import fold_forward
from microfold.transform.scales.propagation.kinds import SCALE


@function_pass(opt_level=3)
def forward_fold_scale_axis(graph: Graph, context: PassContext) -> Graph:
    """Fold scales into the readers of their results."""
    return fold_forward(graph, SCALE, context)
