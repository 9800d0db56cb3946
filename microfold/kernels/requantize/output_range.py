"""Output ranges of integer and float kernels, with the clips of a node's epilogue applied."""

from __future__ import annotations

import math

from microfold.ir.node import Node
from microfold.kernels.fields import declare
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_table
from microfold.ops.elementwise.activations.clip import Clip

# Fields with the limits to which an output is clamped.
LIMIT_FIELDS = declare("output_minimum", "output_maximum")


def unsupported_epilogue(node: Node, *, tables: bool = False) -> str | None:
    """Return the reason if the epilogue has operators other than clips; else None.

    Args:
        tables: whether the kernel can also compute an epilogue by one table lookup, see `output_table`.
    """
    if tables and output_table.is_table(node):
        return None
    for step in node.epilogue:
        if not isinstance(step.op, Clip):
            return f"it cannot fuse {step.op.name}"
    return None


def integer_bounds(node: Node) -> tuple[int, int]:
    """Return the range of the node's integer output after its clips.

    If outputs are looked up in a table, the table includes the clips. The table index then has the full range
    of its type.
    """
    element = node.outputs[0].type.element
    low, high = element.dtype.range
    if output_table.is_table(node):
        return low, high
    for step in node.epilogue:
        assert isinstance(step.op, Clip)
        clip_low, clip_high = step.op.bounds(element)
        low, high = min(max(low, clip_low), clip_high), max(min(high, clip_high), clip_low)
    return low, high


def output_limits(layer: LayerContext) -> tuple[int, int]:
    """Return the limits to which code must clamp an integer output.

    They are the bounds of `integer_bounds`; a bound that is proved to have no effect is replaced by the
    type's.
    """
    low, high = integer_bounds(layer.node)
    reach = layer.ranges.unsaturated.get(layer.node) if layer.ranges is not None else None
    if reach is None:
        return low, high
    lowest, highest = layer.node.outputs[0].type.dtype.range
    return lowest if reach.hull[0] >= low else low, highest if reach.hull[1] <= high else high


def clamping(node: Node) -> tuple[bool, dict[str, int | float]]:
    """Return whether the output is clamped within its type's range, and the layer fields of the clamp."""
    if node.outputs[0].type.dtype.is_float:
        low, high = float_bounds(node)
        clamp = (low, high) != (-math.inf, math.inf)
        return clamp, {"output_minimum": low, "output_maximum": high} if clamp else {}
    return _within(node, integer_bounds(node))


def proved_clamping(layer: LayerContext) -> tuple[bool, dict[str, int | float]]:
    """Return `clamping` for a product sum, without integer bounds that are proved to have no effect."""
    if layer.node.outputs[0].type.dtype.is_float:
        return clamping(layer.node)
    return _within(layer.node, output_limits(layer))


def _within(node: Node, limits: tuple[int, int]) -> tuple[bool, dict[str, int | float]]:
    low, high = limits
    clamp = limits != node.outputs[0].type.dtype.range
    return clamp, {"output_minimum": low, "output_maximum": high} if clamp else {}


def float_bounds(node: Node) -> tuple[float, float]:
    """Return the range of the node's float output after its clips; infinite if open."""
    low, high = -math.inf, math.inf
    for step in node.epilogue:
        assert isinstance(step.op, Clip)
        low, high = max(low, step.op.minimum), min(high, step.op.maximum)
    return low, high
