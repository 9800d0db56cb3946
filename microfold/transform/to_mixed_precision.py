"""Computes products of float32 values in float16, on request.

    %a: float32[1,64] = relu(%x)                       %h: float16[1,64] = cast(%a) {dtype=float16}
    %y: float32[1,8] = fully_connected(%a, %w)    ->   %p: float16[1,8] = fully_connected(%h, %w)
                                                       %y: float32[1,8] = cast(%p) {dtype=float32}

Convolutions, fully connected layers and matrix products read and give float16; sums are kept in float32.
Casts stand around each; `canonicalize_cast` takes out those between two of them. Constants are rounded
here. Only where `PassContext.numerics` is relaxed, and not in the default pipeline: no kernel computes
float16 yet, so that what comes out can be evaluated, to see what the precision costs, but not be built.
What a float16 cannot hold (weights beyond 65504) keeps its layer as it is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microfold.ir.graph import Graph, Value
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, Rule, Site, forward_rewrite
from microfold.ir.types import DType, ElementType, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.cast import Cast
from microfold.ops.conv2d import Conv2D
from microfold.ops.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.fully_connected import FullyConnected
from microfold.ops.transpose_conv2d import TransposeConv2D
from microfold.passes import PassContext, function_pass

Product = Conv2D | DepthwiseConv2D | TransposeConv2D | FullyConnected | BatchMatmul
_PRODUCTS = (Conv2D, DepthwiseConv2D, TransposeConv2D, FullyConnected, BatchMatmul)


@function_pass(opt_level=4)
def to_mixed_precision(graph: Graph, context: PassContext) -> Graph:
    """Put products of float32 between casts to float16 and back."""

    def convert(site: Site[None]) -> Replacement:
        node, op = site.node, site.node.op
        assert isinstance(op, Product)
        if node.output.type.dtype is not DType.FLOAT32:
            return None
        if context.numerics != "relaxed":
            context.declined(node, "numerics must be relaxed for other bits; they are exact")
            return None
        if node.epilogue:
            context.declined(node, "it has an epilogue")
            return None
        large = [v.name for v in node.operands if not _fits(site, v)]
        if large:
            context.declined(node, f"constant %{large[0]} has elements beyond float16")
            return None
        operands = [_narrow(site, site.value(index)) for index in range(len(node.inputs))]
        context.fired(node, "its operands and its result are float16")
        half = replace(op, out=ElementType(DType.FLOAT16))
        (product,) = site.builder.emit(half, operands, [f"{node.output.name}_half"])
        return site.emit(Cast(DType.FLOAT32), product)

    rules: dict[type[Op], Rule[None]] = dict.fromkeys(_PRODUCTS, convert)
    return forward_rewrite(graph, rules)


def _fits(site: Site[None], value: Value) -> bool:
    array = site.array(value)
    if array is None:
        return True
    with np.errstate(over="ignore"):
        return bool(np.isfinite(array.astype(np.float16)).all())


def _narrow(site: Site[None], value: Value | None) -> Value | None:
    """The operand in float16."""
    if value is None:
        return None
    array = site.builder.constants.get(value)
    if array is not None:
        return site.builder.constant(
            array.astype(np.float16), TensorType(DType.FLOAT16, value.type.shape), value.name
        )
    (narrow,) = site.builder.emit(Cast(DType.FLOAT16), [value], [f"{value.name}_half"])
    return narrow
