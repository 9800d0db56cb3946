"""Converts operators over images to a given layout.

    %y: float32[1,4,8,8] = conv2d(%x, %w) {..., layout="NCHW"}
        ->                                                                  (desired_layouts="NHWC")
    %t: float32[1,8,8,3] = transpose(%x) {permutation=(0, 2, 3, 1)}
    %c: float32[1,8,8,4] = conv2d(%t, %w) {...}
    %y: float32[1,4,8,8] = transpose(%c) {permutation=(0, 3, 1, 2)}

Nodes between two converted operators are computed in the new layout, as far as their operator permits it:

- agnostic operators (elementwise) need no change;
- lightly sensitive operators (pad, concatenate, reductions, slices) use other axes;
- heavily sensitive operators (convolutions, pools, resizes) have a layout attribute.

Elsewhere a transpose stays, and `optimize_layout_transform` looks for a better position. Filters keep their
layout.

A blocked layout (NCHW4c) needs a `layout_transform` instead of a transpose. An operator stays unchanged if
its channels are not a multiple of the block. If no blocked layout is requested, every `layout_transform`
becomes a transpose between reshapes, because only these have kernels.

Kernels compute NHWC, which is the default; later stages rely on this pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from microfold.errors import InputError, TypeRuleError
from microfold.ir import layout as layouts
from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.op import REGISTRY
from microfold.ops.image import layout_of
from microfold.ops.movement.layout_transform import LayoutTransform
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.layout.propagation.rule import SweepPolicy
from microfold.transform.layout.propagation.sweep import Sweep


@function_pass(opt_level=0, mandatory=True)
class ConvertLayout(Struct, frozen=True):
    """Conversion of every operator over images to the requested layout.

    Attributes:
        desired_layouts: one layout for all operators, or layouts by operator name, e.g. ``{"conv2d":
            "NCHW"}``; other operators stay unchanged.

    Raises:
        InputError: a layout or an operator does not exist, or the operator has no layout.
    """

    desired_layouts: str | Mapping[str, str] = layouts.NHWC

    def __post_init__(self) -> None:
        given = self.desired_layouts
        for layout in [given] if isinstance(given, str) else given.values():
            try:
                layouts.check_image(layout)
            except TypeRuleError as error:
                raise InputError(f"convert_layout: {error}") from None
        for name in () if isinstance(given, str) else given:
            if not hasattr(REGISTRY.get(name), "layout"):
                known = ", ".join(sorted(name for name, op in REGISTRY.items() if hasattr(op, "layout")))
                raise InputError(f"convert_layout: {name!r} is no operator with a layout; these are {known}")

    def wish(self, node: Node) -> str | None:
        """Return the layout that a node must have, or None if it may keep its own."""
        given = self.desired_layouts
        return given if isinstance(given, str) else given.get(node.op.name)

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        given = self.desired_layouts
        wanted = [given] if isinstance(given, str) else given.values()
        lowered = not any(map(layouts.is_blocked, wanted))
        seeds = [node for node in graph.nodes if lowered and isinstance(node.op, LayoutTransform)]
        sweep = Sweep(graph, seeds, SweepPolicy(numerics=context.numerics), wish=self.wish)
        return convert(sweep, context)


def convert(sweep: Sweep, context: PassContext) -> Graph:
    """Run a sweep that changes layouts, and record its decisions."""
    result = sweep.run()
    for node, change in sweep.converted.items():
        context.fired(node, f"from layout {change}")
    for node in sweep.seeds:
        context.fired(node, "it becomes a transpose between reshapes")
    for node, reason in sweep.refused.items():
        context.declined(node, reason)
    for node in sweep.graph.nodes:
        if layout_of(node.op) is not None and node not in sweep.converted and node not in sweep.refused:
            context.declined(node, f"its layout is {layout_of(node.op)}")
    return result
