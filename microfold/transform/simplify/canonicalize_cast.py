"""Reduces the number of casts, and the bytes that other operators move between them.

    %a: int32[1,64] = cast(%x) {dtype="int32"}               (%x is int8)
    %y: float32[1,64] = cast(%a) {dtype="float32"}      ->   %y: float32[1,64] = cast(%x) {dtype="float32"}

    %a: float32[8,8] = cast(%x) {dtype="float32"}            %t: int8[8,8] = transpose(%x) {...}
    %y: float32[8,8] = transpose(%a) {...}              ->   %y: float32[8,8] = cast(%t) {dtype="float32"}

Two casts in a row become one if the first loses nothing that the second would keep. A cast to the type of its
operand is removed. Operators that only move elements should move narrow ones: widening casts move after them,
narrowing casts before them. Casts that become adjacent are merged. All bits stay the same.
"""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, RewriteSite, Rule, forward_rewrite
from microfold.ir.types import DType
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

# Maximum number of bits of integers that a float type represents exactly, without the sign.
_MANTISSA = {DType.FLOAT16: 11, DType.FLOAT32: 24}
# Operators of one operand that move elements without reading their values.
_MOVEMENTS = (Reshape, StridedSlice, Transpose)


@function_pass(opt_level=3)
def canonicalize_cast(graph: Graph, context: PassContext) -> Graph:
    """Merge casts, remove those without effect, and move them so that other operators move fewer bytes."""
    rules = _Rules(context)
    # A cast that has moved may become adjacent to another cast.
    while True:
        result = forward_rewrite(graph, rules.table())
        if result is graph:
            return graph
        graph = result


class _Rules:
    def __init__(self, context: PassContext):
        self.context = context

    def table(self) -> dict[type[Op], Rule[None]]:
        return {Cast: self.cast, **dict.fromkeys(_MOVEMENTS, self.movement)}

    def cast(self, site: RewriteSite[None]) -> Replacement:
        node, x, inner = site.node, site.value(0), site.producer(0)
        assert isinstance(node.op, Cast)
        assert x is not None
        if node.epilogue:
            return None
        if x.type == node.output.type:
            self.context.fired(node, f"its operand is {node.op.dtype.value}")
            return x
        if inner is None or inner.epilogue:
            return None
        if isinstance(inner.op, Cast):
            return self._merge(site, inner)
        return self._hoist(site, inner)

    def _merge(self, site: RewriteSite[None], inner: Node) -> Replacement:
        """Merge two casts."""
        node = site.node
        assert isinstance(node.op, Cast)
        assert isinstance(inner.op, Cast)
        first = inner.operands[0].type.dtype
        reason = merged_differs(first, inner.op.dtype, node.op.dtype)
        if reason is not None:
            self.context.declined(node, reason)
            return None
        self.context.fired(node, f"cast %{inner.output.name} of {first.value} loses no bits that it keeps")
        return site.emit(node.op, inner.inputs[0])

    def _hoist(self, site: RewriteSite[None], inner: Node) -> Replacement:
        """Move a narrowing cast before an operator that moves as many elements."""
        node = site.node
        assert isinstance(node.op, Cast)
        source, moved = inner.operands[0] if inner.operands else None, inner.outputs[0]
        if source is None or not isinstance(inner.op, Reshape | Transpose):
            return None
        if node.op.dtype.itemsize >= moved.type.dtype.itemsize:
            return None
        if not site.is_only_reader(0):
            self.context.declined(node, f"%{moved.name} has other readers: it is moved anyway")
            return None
        self.context.fired(node, f"before {inner.op.name} %{moved.name}, which then moves fewer bytes")
        (narrow,) = site.builder.emit(node.op, [source], [moved.name])
        return site.emit(inner.op, narrow)

    def movement(self, site: RewriteSite[None]) -> Replacement:
        """Move a cast after the movement if it widens, or if the movement leaves elements out."""
        node, inner = site.node, site.producer(0)
        if node.epilogue or inner is None or inner.epilogue or not isinstance(inner.op, Cast):
            return None
        source = inner.operands[0]
        if source.type.quant is not None and source.type.quant.axis is not None:
            return None
        fewer = node.output.type.size < source.type.size
        width, narrow = inner.op.dtype.itemsize, source.type.dtype.itemsize
        if not (narrow < width or (fewer and narrow == width)):
            return None
        if not site.is_only_reader(0):
            self.context.declined(node, f"%{inner.output.name} has other readers: it is cast anyway")
            return None
        self.context.fired(node, f"before cast %{inner.output.name}: it moves {source.type.dtype.value}")
        (moved,) = site.builder.emit(node.op, [source], [inner.output.name])
        return site.emit(inner.op, moved)


def merged_differs(first: DType, middle: DType, last: DType) -> str | None:
    """Return why a cast to `last` differs from a cast through `middle`, or None if it does not."""
    if DType.FLOAT16 in (first, last) and not (first.is_float and last.is_float):
        return f"kernels convert float16 to and from float32 only, not {first.value} to {last.value}"
    if first is middle or _holds(middle, first):
        # The number is still the same, but integers wrap and floats saturate.
        if first.is_integer and middle.is_float and last.is_integer and not _holds(last, first):
            return f"{first.value} wraps in {last.value}, {middle.value} saturates"
        return None
    wraps = first.is_integer and middle.is_integer and last.is_integer
    if wraps and last.itemsize <= middle.itemsize:
        return None
    return f"{middle.value} does not hold every {first.value}"


def _holds(outer: DType, inner: DType) -> bool:
    """Return whether the outer type represents every number of the inner one."""
    if outer is inner or inner is DType.BOOL:
        return True
    if outer is DType.BOOL or (inner.is_float and not outer.is_float):
        return False
    if inner.is_float:
        return outer.itemsize >= inner.itemsize
    low, high = inner.range
    if outer.is_float:
        # The lowest number is zero or a power of two; the range of float16 exceeds its exact integers by far.
        return high < 1 << _MANTISSA[outer]
    return outer.range[0] <= low and high <= outer.range[1]
