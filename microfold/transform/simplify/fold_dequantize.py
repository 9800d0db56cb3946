"""Folds dequantize into operators that can read quantised elements.

%a: float32[1,9,4] = dequantize(%x)
%b: float32[1,9,3] = dequantize(%s)
%c, … = detection_postprocess(%a, %b, %anchors)   ->   %c, … = detection_postprocess(%x, %s, %anchors)

The operator then computes the same function. This saves memory: the dequantised scores of all classes would
be the largest tensor of a detector.
"""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.rewrite import Operand, Replacement, RewriteSite, forward_rewrite
from microfold.ops.detection_postprocess import TYPES, DetectionPostprocess
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

_QUANTIZED = (0, 1)  # indices of the operands that may be quantised


@function_pass(opt_level=1)
def fold_dequantize(graph: Graph, context: PassContext) -> Graph:
    """Fold dequantize into operators that accept int8 and uint8 in addition to float32."""

    def fold(site: RewriteSite[None]) -> Replacement:
        operands: list[Operand | None] = list(site.inputs)
        for index in _QUANTIZED:
            inner = site.producer(index)
            if inner is None or not isinstance(inner.op, Dequantize) or inner.epilogue:
                continue
            (source,) = inner.operands
            if (
                source.type.dtype not in TYPES
                or source.type.quant is None
                or source.type.quant.axis is not None
            ):
                context.declined(
                    site.node, f"%{source.name} must be int8 or uint8 with one scale; it is {source.type}"
                )
                continue
            operands[index] = source
        if operands == list(site.inputs):
            return None
        context.fired(site.node, "it reads quantised elements itself")
        return site.emit(site.node.op, *operands)

    return forward_rewrite(graph, {DetectionPostprocess: fold})
