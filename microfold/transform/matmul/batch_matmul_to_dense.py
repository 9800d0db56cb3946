"""Replaces products with one constant matrix by fully connected layers.

    %a: float32[1,16,24] = batch_matmul(%x, %w) {...}
    %y: float32[1,16,24] = add(%a, %b)
        ->
    %r: float32[16,32] = reshape(%x) {shape=(16, 32)}
    %d: float32[16,24] = fully_connected(%r, %wt, %b)
    %y: float32[1,16,24] = reshape(%d) {shape=(1, 16, 24)}

All matrices are multiplied by the same constant, so that their rows are the rows of one matrix, and the
reshapes are views. The kernels of fully connected layers pack their weights and add biases. Integers keep
their bits: products are summed exactly, and the scales result in the same multiplier. Floats are summed in
the order of a fully connected layer's reference, which the C kernels of both operators use; `batch_matmul`
promises no order.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import DType, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.elementwise.add import Add
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.reshape import Reshape
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=3)
def batch_matmul_to_dense(graph: Graph, context: PassContext) -> Graph:
    """Replace products with one constant matrix by fully connected layers, and sums after them by biases."""

    def dense(site: RewriteSite[None]) -> Replacement:
        node, op = site.node, site.node.op
        assert isinstance(op, BatchMatmul)
        x, value, array = site.value(0), site.value(1), site.array(node.inputs[1])
        assert x is not None
        assert value is not None
        reason = _why_not(site)
        if reason is not None or array is None:
            context.declined(node, reason or "")
            return None
        matrix = array.reshape(array.shape[-2:])
        weights = np.ascontiguousarray(matrix if op.transpose_second else matrix.T)
        rows = TensorType(x.type.dtype, (math.prod(x.type.shape[:-1]), x.type.shape[-1]), x.type.quant)
        type = value.type.with_shape(weights.shape)
        if type.dtype is DType.INT16 and weights.min(initial=0) >= -128 and weights.max(initial=0) <= 127:
            # Layers of int16 need weights of int8.
            weights, type = weights.astype(np.int8), replace(type, dtype=DType.INT8)
        layer = FullyConnected(op.out)
        try:
            layer.infer(rows, type)
        except TypeRuleError as error:
            context.declined(node, str(error))
            return None
        context.fired(node, f"the rows of %{x.name} are multiplied by one constant matrix")
        name, builder = node.output.name, site.builder
        (flat,) = builder.emit(Reshape(rows.shape), [x], [f"{name}_rows"])
        constant = builder.constant(weights, type, value.name)
        (product,) = builder.emit(layer, [flat, constant], [f"{name}_product"], site.epilogue)
        return builder.emit(Reshape(node.output.type.shape), [product], [name])

    def bias(site: RewriteSite[None]) -> Replacement:
        """Fold a constant for each column into the bias of the layer before a reshape."""
        node = site.node
        for index in range(2):
            constant, inner = site.array(node.inputs[1 - index]), site.producer(index)
            if constant is None or inner is None or not isinstance(inner.op, Reshape) or inner.epilogue:
                continue
            columns = node.output.type.shape[-1:]
            layer = site.builder.producer(inner.operands[0])
            if layer is None or not isinstance(layer.op, FullyConnected) or layer.epilogue:
                continue
            whole = layer.outputs[0].type.shape[-1:] == columns == constant.shape[-1:] == (constant.size,)
            alone = site.is_only_reader(index) and site.uses[inner.operands[0]] <= 1
            if node.output.type != inner.outputs[0].type or node.output.type.dtype is not DType.FLOAT32:
                continue
            if not whole or not alone or len(layer.operands) > 2:
                context.declined(
                    node, "a bias must have one constant per column, and be the product's only reader"
                )
                continue
            context.fired(node, f"it becomes the bias of fully_connected %{layer.outputs[0].name}")
            name, builder = node.output.name, site.builder
            value = builder.constant(constant.reshape(-1), TensorType(DType.FLOAT32, columns), f"{name}_bias")
            (sum_,) = builder.emit(layer.op, [*layer.operands, value], [f"{name}_product"])
            return site.emit(Reshape(node.output.type.shape), sum_, epilogue=site.epilogue)
        return None

    return forward_rewrite(graph, {BatchMatmul: dense, Add: bias})


def _why_not(site: RewriteSite[None]) -> str | None:
    """Return why a product is no fully connected layer, or None if it is one."""
    node, op = site.node, site.node.op
    assert isinstance(op, BatchMatmul)
    x, second = node.operands[0].type, node.operands[1].type
    if site.array(node.inputs[0]) is not None:
        return f"%{node.operands[0].name} is constant"
    if site.array(node.inputs[1]) is None:
        return f"%{node.operands[1].name} is not constant"
    if op.transpose_first:
        return f"%{node.operands[0].name} is transposed"
    if math.prod(second.shape[:-2]) != 1:
        return f"%{node.operands[1].name} has {math.prod(second.shape[:-2])} matrices"
    if math.prod(x.shape[:-1]) == 0:
        return "it has no rows"
    return None
