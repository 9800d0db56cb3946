"""Changes operators over images to the layouts that their kernels prefer.

    alter_op_layout({MaxPool2D: lambda node: "NCHW"})

    %y: int8[1,4,4,8] = max_pool2d(%x) {...}
        ->
    %t: int8[1,8,8,8] = transpose(%x) {permutation=(0, 3, 1, 2)}
    %p: int8[1,8,4,4] = max_pool2d(%t) {..., layout="NCHW"}
    %y: int8[1,4,4,8] = transpose(%p) {permutation=(0, 2, 3, 1)}

`convert_layout` applies a single layout that the user requests. This pass asks for the preferred layout of
every node. The answer may depend on shapes: a kernel that computes 4 channels at once prefers blocks of 4,
but not for an image with 3 channels. Nodes between two altered operators are also computed in the new layout
if possible, so that a chain of operators with the same preference has transposes only at its ends.

The kernels of today compute NHWC and have no preference, which is the default. A kernel family with a
preference registers it where the pipeline runs this pass, after `convert_layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.op import Op
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.layout.convert_layout import convert
from microfold.transform.layout.propagation.rule import SweepPolicy
from microfold.transform.layout.propagation.sweep import Sweep

# Returns the layout that a kernel prefers for a node; None: the node's own layout.
Preference = Callable[[Node], str | None]


@function_pass(opt_level=3)
class AlterOpLayout(Struct, frozen=True):
    """Change of layouts to the preference of each node's kernel.

    Attributes:
        preferences: preference of each operator; a base class includes its subclasses.
    """

    preferences: Mapping[type[Op], Preference] = field(default_factory=dict[type[Op], Preference])

    def wish(self, node: Node) -> str | None:
        """Return the preferred layout of a node, or None."""
        found = next((self.preferences[t] for t in type(node.op).__mro__ if t in self.preferences), None)
        return found(node) if found is not None else None

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        return convert(Sweep(graph, manner=SweepPolicy(numerics=context.numerics), wish=self.wish), context)
