"""Patterns of one operator and the clips behind it, described by kernels."""

from __future__ import annotations

from collections.abc import Callable

from microfold.ir.match import Match
from microfold.ir.node import Node, Step, make_node
from microfold.ir.pattern import is_op, optional, sequence
from microfold.ir.pattern_table import PatternEntry
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.image import refuses_layout
from microfold.target import Target

# What a kernel for an external region supports must not hang on the target: the region is cut out before.
_ANY_TARGET = Target("any", frozenset(), "cc", (), "", "")


def entry(name: str, kernel: Kernel, *, clips: bool = True) -> PatternEntry:
    """The row of the pattern table for what a kernel supports.

    Args:
        kernel: gives operator and conditions; its `supports` must not depend on the target.
        clips: clips behind the operator belong to the match.
    """
    pattern = is_op(kernel.op)
    clip = optional(is_op(Clip))
    found = sequence(pattern, clip, clip) if clips else pattern
    return PatternEntry(name, found, _check(kernel))


def _check(kernel: Kernel) -> Callable[[Match], str | None]:
    # Kernels compute NHWC; selection asks the same of every node.
    return lambda match: refuses_layout(match.nodes[0].op) or kernel.supports(site_of(match))


def site_of(match: Match) -> LayerContext:
    """A matched operator with the clips behind it as its epilogue, as kernels see it."""
    first, *clips = match.nodes
    steps = [Step(clip.op) for clip in clips]
    node: Node = make_node(first.op, first.inputs, [value.name for value in first.outputs], steps)
    constants = {value: array for value in node.operands if (array := match.flow.array(value)) is not None}
    return LayerContext(node, constants, _ANY_TARGET)
