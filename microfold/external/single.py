"""Patterns of one operator and the clips after it, derived from a kernel."""

from __future__ import annotations

from collections.abc import Callable

from microfold.ir.match import Match
from microfold.ir.node import EpilogueStep, Node, make_node
from microfold.ir.pattern import is_op, optional, sequence
from microfold.ir.pattern_table import PatternEntry
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.image import refuses_layout
from microfold.target import Target

# Target for `Kernel.supports`, whose result must not depend on the target for external regions.
_ANY_TARGET = Target("any", frozenset(), "cc", (), "", "")


def entry(name: str, kernel: Kernel, *, clips: bool = True) -> PatternEntry:
    """Return the pattern table entry for the layers that a kernel supports.

    Args:
        kernel: defines operator and conditions; its `supports` must not depend on the target.
        clips: whether clips after the operator belong to the match.
    """
    pattern = is_op(kernel.op)
    clip = optional(is_op(Clip))
    found = sequence(pattern, clip, clip) if clips else pattern
    return PatternEntry(name, found, _check(kernel))


def _check(kernel: Kernel) -> Callable[[Match], str | None]:
    # Kernels compute NHWC; kernel selection checks this for every other node.
    return lambda match: refuses_layout(match.nodes[0].op) or kernel.supports(site_of(match))


def site_of(match: Match) -> LayerContext:
    """Return a matched operator as kernels see it, with the clips after it as its epilogue."""
    first, *clips = match.nodes
    steps = [EpilogueStep(clip.op) for clip in clips]
    node: Node = make_node(first.op, first.inputs, [value.name for value in first.outputs], steps)
    constants = {value: array for value in node.operands if (array := match.flow.array(value)) is not None}
    return LayerContext(node, constants, _ANY_TARGET)
