"""Multiplies the parts of a sum separately if that is cheaper than multiplying the sum.

    with constants %c and %w:
    %s: float32[4,64] = add(%x, %c)                %p: float32[4,8] = batch_matmul(%x, %w)
    %y: float32[4,8] = batch_matmul(%s, %w)    ->  %y: float32[4,8] = add(%p, %cw)

    with %b: float32[64,4] and %a: float32[4,64]:
    %d: float32[64,64] = batch_matmul(%b, %a)      %p: float32[1,64] = batch_matmul(%x, %w)
    %s: float32[64,64] = add(%w, %d)               %q: float32[1,4] = batch_matmul(%x, %b)
    %y: float32[1,64] = batch_matmul(%x, %s)   ->  %r: float32[1,64] = batch_matmul(%q, %a)
                                                   %y: float32[1,64] = add(%p, %r)

A constant that is added to the operand of a product with another constant can be added to the result instead,
multiplied by the other factor. The pass does so if the result has fewer elements. It also avoids multiplying
out a product of low rank that is added to a matrix (an adapter whose factors the model computes), if that
needs fewer multiplications. The pass changes float32 only, because it changes the order of sums, as folding a
shift does. Integer sums are rounded, so that the bits would change.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import Array, DType, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.elementwise.add import Add
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=3)
def expand_matmul_of_sum(graph: Graph, context: PassContext) -> Graph:
    """Distribute float32 matrix products over sums if that is cheaper."""

    def expand(site: RewriteSite[None]) -> Replacement:
        for index in range(2):
            inner = site.producer(index)
            if inner is None or not isinstance(inner.op, Add) or inner.epilogue:
                continue
            sum = inner.output
            if sum.type.dtype is not DType.FLOAT32:
                context.declined(site.node, f"%{sum.name} is rounded to {sum.type.dtype.value}")
            elif not site.is_only_reader(index):
                context.declined(site.node, f"%{sum.name} has other readers: it is computed anyway")
            else:
                answer = _constant_part(site, context, index, inner) or _low_rank_part(
                    site, context, index, inner
                )
                if answer is not None:
                    return answer
        return None

    # A part may be another sum.
    while True:
        result = forward_rewrite(graph, {BatchMatmul: expand})
        if result is graph:
            return graph
        graph = result


def _constant_part(site: RewriteSite[None], context: PassContext, index: int, inner: Node) -> Replacement:
    """Move a constant summand after the product, if the other factor is also constant."""
    node, constants = site.node, site.builder.constants
    other = site.value(1 - index)
    assert isinstance(node.op, BatchMatmul)
    assert other is not None
    part = next((i for i, v in enumerate(inner.operands) if v in constants), None)
    if part is None or other not in constants:
        return None
    addend, rest, sum, out = inner.operands[part], inner.operands[1 - part], inner.output, node.output
    if rest.type != sum.type:
        context.declined(node, f"the sum %{sum.name} broadcasts %{rest.name}")
        return None
    if out.type.size >= sum.type.size:
        context.declined(node, f"its result has {out.type.size} elements, the sum {sum.type.size}")
        return None
    product = _times(node.op, _spread(constants[addend], sum.type), constants[other], index)
    # Equal rows, or equal stacks, are reduced to one that is broadcast.
    product = _without_repetition(product)
    if product.nbytes > constants[addend].nbytes + constants[other].nbytes:
        context.declined(node, f"the product of the constants would need {product.nbytes} bytes of flash")
        return None
    if not np.isfinite(product).all():
        context.declined(node, "the product of the constants exceeds the range of float32")
        return None
    name = sum.name
    context.fired(node, f"%{addend.name} is added to {out.type.size} elements instead of {sum.type.size}")
    operands = [other, other]
    operands[index] = rest
    (body,) = site.builder.emit(node.op, operands, [name])
    shift = site.builder.constant(product, TensorType(DType.FLOAT32, product.shape), addend.name)
    return site.emit(Add(node.op.out), body, shift, epilogue=site.epilogue)


def _low_rank_part(site: RewriteSite[None], context: PassContext, index: int, inner: Node) -> Replacement:
    """Avoid a part of the sum that is a product without other readers."""
    node, other, sum = site.node, site.value(1 - index), inner.output
    assert isinstance(node.op, BatchMatmul)
    assert other is not None
    for part in range(2):
        update, rest = inner.operands[part], inner.operands[1 - part]
        product = site.builder.producer(update)
        if product is None or not isinstance(product.op, BatchMatmul) or product.epilogue:
            continue
        if site.uses[update] > 1 or update.type != sum.type or rest.type != sum.type:
            context.declined(node, f"%{update.name} has other readers, or one part broadcasts")
            continue
        steps = _without_product(node.op, product, index)
        before = product.macs() + node.op.macs(*(v.type for v in _pair(sum, other, index)))
        after = node.op.macs(*(v.type for v in _pair(rest, other, index)))
        running = other.type
        for op, factor in steps:
            operands = _pair(Value("", running), factor, 1 - index)
            after += op.macs(*(v.type for v in operands))
            running = op.infer(*(v.type for v in operands))
        if after >= before:
            context.declined(node, f"its parts would need {after} multiplications; the sum needs {before}")
            continue
        context.fired(node, f"{after} multiplications instead of {before}: %{update.name} is not computed")
        (body,) = site.builder.emit(node.op, _pair(rest, other, index), [sum.name])
        running_value = other
        for op, factor in steps:
            (running_value,) = site.builder.emit(op, _pair(running_value, factor, 1 - index), [update.name])
        return site.emit(Add(node.op.out), body, running_value, epilogue=site.epilogue)
    return None


def _without_product(op: BatchMatmul, product: Node, index: int) -> list[tuple[BatchMatmul, Value]]:
    """Return the products that multiply the other factor by the factors of `product`, as (operator, factor).

    With the sum as second operand (index 1), X (B A) becomes (X B) A; as first operand, (B A) X becomes B (A
    X).
    """
    assert isinstance(product.op, BatchMatmul)
    turned = op.transpose_second if index else op.transpose_first
    factors = [
        (product.operands[0], product.op.transpose_first),
        (product.operands[1], product.op.transpose_second),
    ]
    if turned:
        factors = [(value, not flag) for value, flag in reversed(factors)]
    if not index:
        factors.reverse()
    other = op.transpose_first if index else op.transpose_second
    steps: list[tuple[BatchMatmul, Value]] = []
    for value, flag in factors:
        flags = (other, flag) if index else (flag, other)
        steps.append((BatchMatmul(*flags, op.out), value))
        other = False
    return steps


def _pair(value: Value, other: Value, index: int) -> list[Value]:
    """Return the two values in order, with the first one at this index."""
    return [value, other] if index == 0 else [other, value]


def _spread(constant: Array, type: TensorType) -> Array:
    return np.broadcast_to(constant, type.shape)


def _times(op: BatchMatmul, sum: Array, other: Array, index: int) -> Array:
    """Return the product of two constants, computed in float64 and rounded once."""
    first, second = (sum, other) if index == 0 else (other, sum)
    first = first.swapaxes(-1, -2) if op.transpose_first else first
    second = second.swapaxes(-1, -2) if op.transpose_second else second
    with np.errstate(over="ignore"):
        return np.matmul(first.astype(np.float64), second.astype(np.float64)).astype(np.float32)


def _without_repetition(array: Array) -> Array:
    """Reduce each axis along which all slices are equal to one slice."""
    for axis in range(array.ndim):
        first = np.take(array, [0], axis)
        if np.array_equal(np.broadcast_to(first, array.shape), array):
            array = first
    return np.ascontiguousarray(array)
