"""Folds sums with constants into biases.

    %a: float32[1,8,8,4] = conv2d(%x, %w, %b) {...}
    %p: float32[1,4,4,4] = max_pool2d(%a) {...}
    %y: float32[1,4,4,4] = add(%p, %t)
        ->
    %a: float32[1,8,8,4] = conv2d(%x, %w, %bt) {...}
    %p: float32[1,4,4,4] = max_pool2d(%a) {...}

This pass is the counterpart of `fold_scale_axis` for summands. A shift is added to the bias before it, or,
multiplied by the weights, to the bias after it. Only one of the two operands of a sum has to take the shift.

A shift in front of a convolution that pads with zeros cannot be folded. At the border a part of the window is
padding, so that the shift would need another bias there than inside. A bias for every pixel would be exact,
but it would be another, larger, sum with a constant.
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
    """Fold shifts into the producers of their operands, then into the readers of their results."""
    context = recording_once(context)
    while True:
        folded = fold_forward(fold_backward(graph, SHIFT, context), SHIFT, context)
        if folded is graph:
            return graph
        graph = folded
