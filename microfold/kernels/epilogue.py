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


def float_bounds(node: Node) -> tuple[float, float]:
    """The same for a float output; infinite where open."""
    low, high = -math.inf, math.inf
    for step in node.epilogue:
        assert isinstance(step.op, Clip)
        low, high = max(low, step.op.minimum), min(high, step.op.maximum)
    return low, high
