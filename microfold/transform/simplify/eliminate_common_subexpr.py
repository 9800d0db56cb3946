"""Computes common subexpressions once.

    %a: int8[4] = clip(%x) {minimum=0.0, maximum=6.0}            %a: int8[4] = clip(%x) {minimum=0.0, ...}
    %b: int8[4] = clip(%x) {minimum=0.0, maximum=6.0}    ->      %y: int8[4] = add(%a, %a)
    %y: int8[4] = add(%a, %b)

Two nodes are equal if their operators, attributes, operands and epilogues are equal. Constants of equal type
and bytes are merged. Nodes with effects are never merged, nor are copies, which exist for their storage. A
caller may exclude nodes by `fskip`, and constants by `call_only`: nodes with different constants then differ.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, Node, Value, rewire
from microfold.ir.op import Op
from microfold.ir.rewrite import Operand, RewriteSite, forward_rewrite
from microfold.ir.types import TensorType
from microfold.ops.movement.copy import Copy
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

Key = tuple[Op, str, tuple[Operand | None, ...], tuple[EpilogueStep, ...]]


@function_pass(opt_level=3)
class EliminateCommonSubexpr(Struct, frozen=True):
    """Merging of equal nodes and of equal constants.

    Attributes:
        fskip: returns whether a node stays unchanged; None: no node is skipped.
        call_only: whether to leave constants unmerged.
    """

    fskip: Callable[[Node], bool] | None = None
    call_only: bool = False

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        if not self.call_only:
            graph = _merge_constants(graph, context)
        seen: dict[Key, tuple[Value, ...]] = {}

        def merge(site: RewriteSite[None]) -> tuple[Value, ...] | None:
            node = site.node
            if node.op.has_effect or isinstance(node.op, Copy):
                context.declined(
                    node, "it has an effect" if node.op.has_effect else "it exists for its storage"
                )
                return None
            if self.fskip is not None and self.fskip(node):
                context.declined(node, "fskip excludes it")
                return None
            # `repr` distinguishes 0.0 from -0.0, which compare equal.
            key = (node.op, repr(node.op), site.inputs, site.epilogue)
            if key not in seen:
                seen[key] = node.outputs
                context.declined(node, "no node before it computes the same")
                return None
            context.fired(node, f"it computes the same as %{seen[key][0].name}")
            return seen[key]

        return forward_rewrite(graph, merge)


# The pass with default options.
eliminate_common_subexpr = EliminateCommonSubexpr()


def _merge_constants(graph: Graph, context: PassContext) -> Graph:
    """Let readers of equal constants read the first one."""
    first: dict[tuple[TensorType, bytes], Value] = {}
    replaced: dict[Value, Value] = {}
    for value, array in graph.constants.items():
        kept = first.setdefault((value.type, array.tobytes()), value)
        if kept is not value:
            replaced[value] = kept
            context.fired(f"constant %{value.name}", f"it equals %{kept.name}")
    if not replaced:
        return graph
    return graph.with_nodes([rewire(node, replaced) for node in graph.nodes], replaced=replaced)
