"""What a node's epilogue means for an integer kernel."""

from __future__ import annotations

import math

from microfold.ir.graph import Node
from microfold.ops.clip import Clip


def unsupported_epilogue(node: Node) -> str | None:
    """The reason if the epilogue has anything but clips."""
    for step in node.epilogue:
        if not isinstance(step.op, Clip):
            return f"it cannot fuse {step.op.name}"
    return None


def integer_bounds(node: Node) -> tuple[int, int]:
    """The range of the node's integer output after its clips."""
    element = node.outputs[0].type.element
    low, high = element.dtype.range
    for step in node.epilogue:
        assert isinstance(step.op, Clip)
        clip_low, clip_high = step.op.bounds(element)
        low, high = min(max(low, clip_low), clip_high), max(min(high, clip_high), clip_low)
    return low, high


def clamping(node: Node) -> tuple[bool, dict[str, int | float]]:
    """Whether the output is clamped within its type's range, and the layer fields that it needs then."""
    element = node.outputs[0].type.element
    if element.dtype.is_float:
        low, high = float_bounds(node)
        clamped = (low, high) != (-math.inf, math.inf)
    else:
        low, high = integer_bounds(node)
        clamped = (low, high) != element.dtype.range
    return clamped, {"output_minimum": low, "output_maximum": high} if clamped else {}


def float_bounds(node: Node) -> tuple[float, float]:
    """The same for a float output; infinite where open."""
    low, high = -math.inf, math.inf
    for step in node.epilogue:
        assert isinstance(step.op, Clip)
        low, high = max(low, step.op.minimum), min(high, step.op.maximum)
    return low, high
