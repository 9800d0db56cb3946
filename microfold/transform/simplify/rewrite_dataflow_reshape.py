"""Replaces operators that only change the shape by reshapes: views, without code or copies.

    %y: int8[1,8,4,1] = transpose(%x) {permutation=(0, 2, 3, 1)}      (%x: int8[1,1,8,4])
                                ->
    %y: int8[1,8,4,1] = reshape(%x) {shape=(1, 8, 4, 1)}

Some operators keep all elements in their order: transposes that move only axes of extent 1, slices and
gathers of everything, broadcasts to the same number of elements, and concatenations of one value. (The
importer has already replaced squeeze, expand_dims and flatten by reshapes.) All bits stay the same.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ir.types import Array, TensorType
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

_MOVEMENTS = (BroadcastTo, Concatenate, Gather, StridedSlice, Transpose)


@function_pass(opt_level=1)
def rewrite_dataflow_reshape(graph: Graph, context: PassContext) -> Graph:
    """Replace movements that keep the order of all elements."""

    def rewrite(site: RewriteSite[None]) -> tuple[Value, ...] | None:
        node, x = site.node, site.value(0)
        assert x is not None
        if node.epilogue:
            context.declined(node, "it has an epilogue")
            return None
        result = node.output.type
        reason = _what_moves(node.op, x.type, result, site.array(node.inputs[-1]))
        if reason is not None:
            context.declined(node, reason)
            return None
        context.fired(node, "all elements stay in their order")
        return site.emit(Reshape(result.shape), x)

    return forward_rewrite(graph, dict.fromkeys(_MOVEMENTS, rewrite))


def _what_moves(op: Op, x: TensorType, result: TensorType, last: Array | None) -> str | None:
    """Return why the result is not the elements of x in their order, or None if it is.

    Args:
        last: content of the last operand, if it is constant.
    """
    if result.size != x.size:
        return f"it makes {result.size} elements of {x.size}"
    if isinstance(op, Transpose):
        moved = [axis for axis in op.permutation if x.shape[axis] != 1]
        return None if moved == sorted(moved) else "axes of more than one element change places"
    if isinstance(op, StridedSlice):
        turned = any(step < 0 < n - 1 for step, n in zip(op.strides, x.shape, strict=True))
        return "it reverses an axis" if turned else None
    if isinstance(op, Gather):
        if last is None:
            return "its indices are computed"
        count = x.shape[op.axis]
        in_order = np.array_equal(np.clip(last.reshape(-1), 0, count - 1), np.arange(count))
        return None if in_order else "its indices are not in order"
    return None
