"""Gives operators over images the layouts that their kernels prefer.

    alter_op_layout({MaxPool2D: lambda node: "NCHW"})

    %y: int8[1,4,4,8] = max_pool2d(%x) {...}
        ->
    %t: int8[1,8,8,8] = transpose(%x) {permutation=(0, 3, 1, 2)}
    %p: int8[1,8,4,4] = max_pool2d(%t) {..., layout="NCHW"}
    %y: int8[1,4,4,8] = transpose(%p) {permutation=(0, 2, 3, 1)}

`convert_layout` follows a person who wants one layout; this pass asks for every node, and the answer may
depend on its shapes: a kernel that computes 4 channels at once wants them in blocks of 4, but not of an image
with 3. What lies between two altered operators is computed in their layout, where it can be, so that a row of
operators with the same wish has transposes at its ends only.

Today's kernels compute NHWC and wish for nothing, which is the default. A kernel family with another
preference adds its wish where the pipeline runs this pass, behind `convert_layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.op import Op
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.support.frozen import frozen
from microfold.transform.layout.convert_layout import convert
from microfold.transform.layout.propagation.rule import Manner
from microfold.transform.layout.propagation.sweep import Sweep

# A kernel's wish: the layout it prefers for a node; None for the one that the node has.
Preference = Callable[[Node], str | None]


@function_pass(opt_level=3)
@frozen
class AlterOpLayout:
    """Ask for each node which layout its kernel prefers.

    Attributes:
        preferences: by operator; a base class stands for its subclasses.
    """

    preferences: Mapping[type[Op], Preference] = field(default_factory=dict[type[Op], Preference])

    def wish(self, node: Node) -> str | None:
        """What the preferences say about a node."""
        found = next((self.preferences[t] for t in type(node.op).__mro__ if t in self.preferences), None)
        return found(node) if found is not None else None

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        return convert(Sweep(graph, manner=Manner(numerics=context.numerics), wish=self.wish), context)
