"""Merges chains of quantised products and sums with constants into one depthwise convolution.

    %m: int8[1,8,8,4] q(0.05, 0) = mul(%x, %s)
    %y: int8[1,8,8,4] q(0.06, 3) = add(%m, %t)
        ->
    %y: int8[1,8,8,4] q(0.06, 3) = depthwise_conv2d(%x, %w, %b) {...}      // 1x1

`fold_quantized_scale_axis` cannot fold these chains, for example a batch normalisation in front of an
activation. A 1x1 depthwise convolution computes a factor and a summand per channel. One requantisation then
replaces two or more, and clips after the chain are fused into it.

The pass needs relaxed numerics, because the intermediate values are neither rounded nor clamped.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from microfold.analysis.relaxation import Relaxation
from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe, make_node
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ir.types import DType, Quant, TensorType
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.scales.quantized.affine import Affine, read_affine
from microfold.transform.scales.quantized.product_sums import read_weights, scale_outputs


@function_pass(opt_level=3)
def combine_scale_shift(graph: Graph, context: PassContext) -> Graph:
    """Combine chains of quantised scales and shifts."""
    rows = {row[-1][0]: row for row in _rows(graph)}

    def combine(site: RewriteSite[None]) -> tuple[Value, ...] | None:
        node, row = site.node, rows.get(site.node)
        if row is None:
            return None
        if context.numerics == "exact":
            context.declined(node, "not the same bits: values in between would not be rounded and clamped")
            return None
        first, total = row[0]
        for _, affine in row[1:]:
            total = total.then(affine)
        x = site.builder.value(site.replaced.get(_data(first, total), _data(first, total)))
        made = _depthwise(site, x, total)
        if isinstance(made, str):
            context.declined(node, made)
            return None
        gone = " and ".join(f"%{part.output.name}" for part, _ in row[:-1])
        change = f"{len(row)} consecutive operators become one {total.describe()}"
        change = f"{change}; {gone} is neither rounded nor clamped in between"
        context.fired(node, change, Relaxation(describe(node), change))
        return made

    return forward_rewrite(graph, combine)


def _rows(graph: Graph) -> Iterator[list[tuple[Node, Affine]]]:
    """Yield chains of two or more affine nodes on images. Each node is the only reader of the one before."""
    uses = graph.use_counts()
    rows: dict[Value, list[tuple[Node, Affine]]] = {}
    for node in graph.nodes:
        affine = read_affine(node, graph.constants)
        if isinstance(affine, Affine) and node.output.type.rank == 4:
            operand = _data(node, affine)
            before = rows.pop(operand, []) if uses[operand] == 1 else []
            rows[node.output] = [*before, (node, affine)]
    return (row for row in rows.values() if len(row) > 1)


def _data(node: Node, affine: Affine) -> Value:
    value = node.inputs[affine.operand]
    assert value is not None
    return value


def _depthwise(site: RewriteSite[None], x: Value, affine: Affine) -> tuple[Value, ...] | str:
    """Return a 1x1 depthwise convolution that computes ``affine(x)``, or why there is none."""
    out, dtype = site.node.output.type, DType.INT8
    weights = np.full((1, 1, 1, affine.scale.size), dtype.range[1], np.int8)
    same = Quant.per_tensor(1 / dtype.range[1])
    filters = Value(f"{site.node.output.name}_scale", TensorType(dtype, weights.shape, same))
    op = DepthwiseConv2D((1, 1), (1, 1), ((0, 0), (0, 0)), x.type.element)
    identity = make_node(op, [x, filters], [site.node.output.name])
    given = read_weights(identity, {filters: weights})
    assert not isinstance(given, str)
    result = scale_outputs(identity, given, affine, out.element)
    if isinstance(result, str):
        return result
    inputs = [x, site.builder.constant(result.weights, result.weights_type, filters.name)]
    if result.bias is not None:
        name = f"{site.node.output.name}_shift"
        inputs.append(site.builder.constant(result.bias, result.bias_type, name))
    try:
        return site.emit(replace(op, out=out.element), *inputs, epilogue=site.epilogue)
    except TypeRuleError as error:
        return str(error)
