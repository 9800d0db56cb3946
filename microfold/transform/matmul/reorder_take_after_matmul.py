"""Gathers rows or columns from a product instead of from its factors, if that is cheaper.

    %r: int8[4,32] = gather(%e, %i) {axis=0}            (%e: [100,32] and %w: [8,32] constant)
    %y: int8[4,8] = fully_connected(%r, %w)
        ->
    %y: int8[4,8] = gather(%ew, %i) {axis=0}            (%ew: [100,8])

    %s: float32[8,9] = gather(%w, %i) {axis=1}        %p: float32[64,3] = batch_matmul(%x, %w)
    %y: float32[64,9] = batch_matmul(%x, %s)    ->    %y: float32[64,9] = gather(%p, %i) {axis=1}

Each row of a product depends on one row of the first factor, and each column on one column of the second
factor. A `gather` (take) from a factor can therefore become a gather from the product. If both factors are
constant, as in an embedding with a layer after it, the product is computed at compile time, unless it needs
more flash than the factors. Otherwise the rewrite is profitable if the factors have fewer rows, or columns,
than are gathered. The estimate is 7 instructions per multiplication, 40 per contiguous copy and 1.5 per
copied byte. Every number is computed as before, so that the bits stay the same.
"""

from __future__ import annotations

import math

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, RewriteSite, Rule, forward_rewrite
from microfold.ir.types import Shape, Tensor, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.gather import Gather
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

PRODUCT, RUN, BYTE = 7.0, 40.0, 1.5  # instructions per multiplication, contiguous copy and copied byte


@function_pass(opt_level=3)
def reorder_take_after_matmul(graph: Graph, context: PassContext) -> Graph:
    """Move gather after matrix products if that is cheaper."""

    def reorder(site: RewriteSite[None]) -> Replacement:
        for index in range(2):
            taken = _take(site, context, index)
            answer = _reordered(site, context, taken) if taken is not None else None
            if answer is not None:
                return answer
        return None

    rules: dict[type[Op], Rule[None]] = {BatchMatmul: reorder, FullyConnected: reorder}
    # Both rows and columns may be gathered.
    while True:
        result = forward_rewrite(graph, rules)
        if result is graph:
            return graph
        graph = result


class _Take(Struct, frozen=True):
    """Gather of rows or columns in front of a product.

    Attributes:
        gather: gather node.
        operand: index of the product's operand that it computes.
        axis: axis of the product's result for the gathered slices.
    """

    gather: Node
    operand: int
    axis: int


def _take(site: RewriteSite[None], context: PassContext, index: int) -> _Take | None:
    node, gather = site.node, site.producer(index)
    if gather is None or not isinstance(gather.op, Gather) or gather.epilogue:
        return None
    taken, rank = gather.output, node.output.type.rank
    if isinstance(node.op, BatchMatmul):
        turned = node.op.transpose_second if index else node.op.transpose_first
        depth_axis = taken.type.rank - (1 if turned == bool(index) else 2)
        axis = 2 * taken.type.rank - 3 - depth_axis
    else:
        axis = 0
    if gather.operands[1].type.rank != 1 or gather.op.axis != axis:
        context.declined(node, f"%{taken.name} gathers other slices than rows or columns of the product")
    elif not site.is_only_reader(index):
        context.declined(node, f"%{taken.name} has other readers: it is computed anyway")
    elif isinstance(node.op, FullyConnected) and index == 1 and len(node.operands) > 2:
        context.declined(node, f"it adds a bias to the elements that %{taken.name} selects")
    else:
        return _Take(gather, index, rank - 1 if index else rank - 2)
    return None


def _reordered(site: RewriteSite[None], context: PassContext, taken: _Take) -> Replacement:
    node, gather = site.node, taken.gather
    table, indices = gather.operands
    operands = [site.value(i) for i in range(len(node.inputs))]
    operands[taken.operand] = table
    types = [value.type if value is not None else None for value in operands]
    (product,) = node.op.infer_all(types)
    after = Gather(taken.axis)
    arrays = [site.builder.constants.get(value) if value is not None else None for value in operands]
    present = [value for value in operands if value is not None]
    if all(array is not None for array in arrays) and not node.epilogue:
        given = sum(value.type.nbytes for value in present)
        if product.nbytes <= given:
            tensors = [
                Tensor(value.type, array) if value is not None and array is not None else None
                for value, array in zip(operands, arrays, strict=True)
            ]
            (result,) = node.op.evaluate(tensors)
            context.fired(node, f"the product is constant: {product.nbytes} bytes instead of {given}")
            constant = site.builder.constant(result.data, result.type, f"{node.output.name}_table")
            return site.emit(after, constant, indices)
    count = indices.type.size
    before = PRODUCT * node.macs() + _moved(gather.output.type.shape, _axis(gather), table.type, count)
    later = PRODUCT * node.op.macs(*types) + _moved(node.output.type.shape, taken.axis, product, count)
    if later >= before:
        context.declined(node, f"it would need about {later:.0f} instructions; it needs {before:.0f}")
        return None
    context.fired(node, f"about {later:.0f} instructions instead of {before:.0f}")
    (whole,) = site.builder.emit(node.op, operands, [gather.output.name], site.epilogue)
    return site.emit(after, whole, indices)


def _axis(gather: Node) -> int:
    assert isinstance(gather.op, Gather)
    return gather.op.axis


def _moved(shape: Shape, axis: int, table: TensorType, count: int) -> float:
    """Estimate the instructions of a gather with a result of this shape."""
    runs = math.prod(shape[:axis]) * count
    return RUN * runs + BYTE * math.prod(shape) * table.dtype.itemsize
