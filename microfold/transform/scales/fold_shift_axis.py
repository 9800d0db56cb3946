"""Folds sums with constants into biases.

    %a: float32[1,8,8,4] = conv2d(%x, %w, %b) {...}
    %p: float32[1,4,4,4] = max_pool2d(%a) {...}
    %y: float32[1,4,4,4] = add(%p, %t)
        ->
    %a: float32[1,8,8,4] = conv2d(%x, %w, %bt) {...}
    %p: float32[1,4,4,4] = max_pool2d(%a) {...}

What `fold_scale_axis` is for factors, this is for summands: a shift goes into the bias before it, or,
weighted, into the one behind it. Of the two operands of a sum only one has to take it.

A shift in front of a convolution that pads with zeros cannot go: at the border, where part of the window is
padding, it adds up to another bias than inside. A bias for every pixel would be exact, but that is a sum
with a constant again, and a larger one.
"""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.passes.context import PassContext, recording_once
from microfold.passes.decorators import function_pass
from microfold.transform.scales.propagation.backward import fold_backward
from microfold.transform.scales.propagation.forward import fold_forward
from microfold.transform.scales.propagation.kinds import SHIFT


@function_pass(opt_level=3)
def fold_shift_axis(graph: Graph, context: PassContext) -> Graph:
    """Fold shifts into what computes their operands, then into what reads their results."""
    context = recording_once(context)
    while True:
        folded = fold_forward(fold_backward(graph, SHIFT, context), SHIFT, context)
        if folded is graph:
            return graph
        graph = folded
