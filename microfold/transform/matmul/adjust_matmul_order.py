"""Multiplies three matrices in the order that needs fewer multiplications.

    %p: float32[64,64] = batch_matmul(%a, %b)     (%a: [64,4], %b: [4,64], %c: [64,8])
    %y: float32[64,8] = batch_matmul(%p, %c)
        ->
    %q: float32[4,8] = batch_matmul(%b, %c)
    %y: float32[64,8] = batch_matmul(%a, %q)

    %h: float32[1,32] = fully_connected(%x, %w1, %b1)      (%x: [1,16])
    %y: float32[1,4] = fully_connected(%h, %w2, %b2)       ->   %y: float32[1,4] = fully_connected(%x, %w, %b)

The pass rewrites (A B) C to A (B C) and back, also with transposed factors. Products of constants are
computed at compile time if the result needs no more flash than its factors. Two consecutive fully connected
layers without any operator in between become one with the product of their weights. The pass changes float32
only, because it changes the order of sums, as folding a scale does. In integer graphs the intermediate value
is rounded, so that the bits would change.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, RewriteSite, Rule, forward_rewrite
from microfold.ir.types import Array, DType, ElementType, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

_FLOAT = ElementType(DType.FLOAT32)


@function_pass(opt_level=3)
def adjust_matmul_order(graph: Graph, context: PassContext) -> Graph:
    """Reassociate chains of float32 matrix products if that needs fewer multiplications."""
    rules = _Rules(context)
    # Longer chains need several rounds. Each round reduces the number of multiplications.
    while True:
        result = forward_rewrite(graph, rules.table())
        if result is graph:
            return graph
        graph = result


class _Factor(Struct, frozen=True):
    """Matrix, or stack of matrices, that is a factor of a product."""

    value: Value
    turned: bool

    def flipped(self) -> _Factor:
        return _Factor(self.value, not self.turned)


class _Rules:
    def __init__(self, context: PassContext):
        self.context = context

    def table(self) -> dict[type[Op], Rule[None]]:
        return {BatchMatmul: self.matmul, FullyConnected: self.fully_connected}

    def matmul(self, site: RewriteSite[None]) -> Replacement:
        node, op = site.node, site.node.op
        assert isinstance(op, BatchMatmul)
        first, second = site.value(0), site.value(1)
        assert first is not None
        assert second is not None
        outer = (_Factor(first, op.transpose_first), _Factor(second, op.transpose_second))
        for index in range(2):
            inner = site.producer(index)
            if inner is None or not isinstance(inner.op, BatchMatmul) or inner.epilogue:
                continue
            if node.output.type.dtype is not DType.FLOAT32:
                self.context.declined(node, f"%{inner.output.name} is rounded to {op.out.dtype.value}")
            elif not site.is_only_reader(index):
                self.context.declined(node, f"%{inner.output.name} has other readers: it is computed anyway")
            else:
                answer = self._reassociated(site, inner, outer[index].turned, outer[1 - index], index)
                if answer is not None:
                    return answer
        return None

    def _reassociated(
        self, site: RewriteSite[None], inner: Node, turned: bool, third: _Factor, index: int
    ) -> Replacement:
        """Compute (A B) C as A (B C), or C (A B) as (C A) B."""
        node, op = site.node, inner.op
        assert isinstance(op, BatchMatmul)
        pair = (
            _Factor(inner.operands[0], op.transpose_first),
            _Factor(inner.operands[1], op.transpose_second),
        )
        if turned:  # the transpose of A B is B^T A^T
            pair = (pair[1].flipped(), pair[0].flipped())
        a, b = pair
        joined = (b, third) if index == 0 else (third, a)
        product = _type(*joined)
        constant = all(
            site.builder.producer(f.value) is None and f.value in site.builder.constants for f in joined
        )
        outer = (
            (a, _Factor(Value("", product), False)) if index == 0 else (_Factor(Value("", product), False), b)
        )
        before = inner.macs() + node.op.macs(
            *(v.type for v in (site.value(0), site.value(1)) if v is not None)
        )
        after = _macs(*outer) + (0 if constant else _macs(*joined))
        if after >= before:
            self.context.declined(node, f"the other order needs {after} multiplications, this one {before}")
            return None
        name = inner.output.name
        if constant:
            given = sum(f.value.type.nbytes for f in joined)
            if product.nbytes > given:
                self.context.declined(
                    node, f"the product of constants needs {product.nbytes} bytes; the factors need {given}"
                )
                return None
            arrays = [_matrix(site.builder.constants[f.value], f.turned).astype(np.float64) for f in joined]
            with np.errstate(all="ignore"):
                array = np.ascontiguousarray(np.matmul(*arrays).astype(np.float32))
            if not np.isfinite(array).all():
                self.context.declined(
                    node, "the product of constants would have elements beyond the range of float32"
                )
                return None
            value = site.builder.constant(array, product, name)
        else:
            (value,) = site.builder.emit(_op(*joined), [f.value for f in joined], [name])
        self.context.fired(node, f"{after} multiplications instead of {before}")
        made = _Factor(value, False)
        outer = (a, made) if index == 0 else (made, b)
        return site.emit(_op(*outer), *(f.value for f in outer), epilogue=site.epilogue)

    def fully_connected(self, site: RewriteSite[None]) -> Replacement:
        """Merge two consecutive layers."""
        node, inner = site.node, site.producer(0)
        if inner is None or not isinstance(inner.op, FullyConnected) or inner.epilogue:
            return None
        arrays = site.builder.constants
        weights = [inner.operands[1], site.value(1)]
        biases = [inner.operands[2] if len(inner.operands) > 2 else None, site.value(2)]
        first, second, first_bias, second_bias = (
            arrays.get(value) if value is not None else None for value in (*weights, *biases)
        )
        if node.output.type.dtype is not DType.FLOAT32:
            self.context.declined(node, f"%{inner.output.name} is rounded")
            return None
        present = [value for value in biases if value is not None]
        if first is None or second is None or any(value not in arrays for value in present):
            self.context.declined(node, "weights or biases are not constant")
            return None
        if not site.is_only_reader(0):
            self.context.declined(node, f"%{inner.output.name} has other readers: it is computed anyway")
            return None
        before, after = first.size + second.size, second.shape[0] * first.shape[1]
        if after >= before:
            self.context.declined(
                node, f"the product of the weights has {after} elements; the factors have {before}"
            )
            return None
        product = second.astype(np.float64) @ first.astype(np.float64)
        total = np.zeros(second.shape[0])
        if first_bias is not None:
            total = total + second.astype(np.float64) @ first_bias.astype(np.float64)
        if second_bias is not None:
            total = total + second_bias
        if not (
            np.isfinite(product.astype(np.float32)).all() and np.isfinite(total.astype(np.float32)).all()
        ):
            self.context.declined(node, "the product of the weights exceeds the range of float32")
            return None
        self.context.fired(node, f"one layer with {after} weights instead of two with {before}")
        operands = [_constant(site, product, f"{node.output.name}_weights")]
        if present:
            operands.append(_constant(site, total, f"{node.output.name}_bias"))
        return site.emit(node.op, inner.inputs[0], *operands, epilogue=site.epilogue)


def _constant(site: RewriteSite[None], array: Array, name: str) -> Value:
    narrow = np.ascontiguousarray(array.astype(np.float32))
    return site.builder.constant(narrow, TensorType(DType.FLOAT32, narrow.shape), name)


def _op(first: _Factor, second: _Factor) -> BatchMatmul:
    return BatchMatmul(first.turned, second.turned, _FLOAT)


def _type(first: _Factor, second: _Factor) -> TensorType:
    return _op(first, second).infer(first.value.type, second.value.type)


def _macs(first: _Factor, second: _Factor) -> int:
    return _op(first, second).macs(first.value.type, second.value.type)


def _matrix(array: Array, turned: bool) -> Array:
    return array.swapaxes(-1, -2) if turned else array
