"""Replaces convolutions whose only window is the whole image by fully connected layers.

    %y: int8[1,1,1,64] = conv2d(%x, %w, %b) {strides=(1, 1), ...}        (%x: int8[1,4,3,16])
        ->
    %r: int8[1,192] = reshape(%x) {shape=(1, 192)}
    %d: int8[1,64] = fully_connected(%r, %wr, %b)
    %y: int8[1,1,1,64] = reshape(%d) {shape=(1, 1, 1, 64)}

These convolutions end networks that were saved without a flatten, and are common in streaming models. Kernels
of convolutions share loads between adjacent pixels, but these images have only one. Kernels of fully
connected layers share them between outputs. Integers keep their bits: the references of both operators sum
the same products exactly, and requantise in the same way. Floats are summed in the same order, the order of
the image's bytes.
"""

from __future__ import annotations

import math

from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph
from microfold.ir.layout import NHWC
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import DType, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.reshape import Reshape
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=3)
def conv2d_to_dense(graph: Graph, context: PassContext) -> Graph:
    """Replace convolutions with windows as large as the image by fully connected layers."""

    def dense(site: RewriteSite[None]) -> Replacement:
        node, op = site.node, site.node.op
        assert isinstance(op, Conv2D)
        x, weights, filters = site.value(0), site.value(1), site.array(node.inputs[1])
        assert x is not None
        assert weights is not None
        reason = _why_not(op, x.type, weights.type)
        if reason is None and filters is None:
            reason = f"%{weights.name} is not constant"
        if reason is not None or filters is None:
            context.declined(node, reason or "")
            return None
        rows = x.type.with_shape((x.type.shape[0], math.prod(x.type.shape[1:])))
        matrix = filters.reshape(filters.shape[0], -1)
        layer = FullyConnected(op.out)
        bias = site.value(2) if len(node.inputs) > 2 else None
        try:
            layer.infer(rows, weights.type.with_shape(matrix.shape), bias.type if bias is not None else None)
        except TypeRuleError as error:
            context.declined(node, str(error))
            return None
        context.fired(node, f"its window is all of %{x.name}")
        name, builder = node.output.name, site.builder
        (flat,) = builder.emit(Reshape(rows.shape), [x], [f"{name}_row"])
        constant = builder.constant(matrix, weights.type.with_shape(matrix.shape), weights.name)
        (product,) = builder.emit(layer, [flat, constant, bias], [f"{name}_product"], site.epilogue)
        return builder.emit(Reshape(node.output.type.shape), [product], [name])

    return forward_rewrite(graph, {Conv2D: dense})


def _why_not(op: Conv2D, x: TensorType, weights: TensorType) -> str | None:
    """Return why a convolution is no fully connected layer, or None if it is one."""
    window = op.window(weights)
    if op.layout != NHWC:
        return f"its image is {op.layout}"
    if window.size != x.shape[1:3] or any(map(any, window.padding)):
        return f"its window of {window.size[0]} x {window.size[1]} is not exactly its image"
    if weights.shape[3] != x.shape[3]:
        return "its channels are in groups"
    if x.dtype is DType.INT8 and weights.dtype is DType.INT16:
        return "its weights have 16 bits, which no fully connected kernel supports with int8"
    return None
