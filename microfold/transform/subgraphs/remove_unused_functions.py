"""Removes subgraphs without users.

    graph @g(%x: int8[4]) -> (%x) {
      subgraph @f = graph @f(%p: int8[4]) -> (%p) {     ->     graph @g(%x: int8[4]) -> (%x) {
      }                                                        }
    }

Examples are the bodies of unrolled loops and of resolved conditions.
"""

from __future__ import annotations

from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=0)
def remove_unused_functions(graph: Graph, context: PassContext) -> Graph:
    """Remove subgraphs that no node runs."""
    used = {name for node in graph.nodes for name in node.op.bodies}
    unused = [name for name in graph.subgraphs if name not in used]
    for name in unused:
        context.fired(f"subgraph @{name}", "no node runs it")
    if not unused:
        return graph
    return replace(graph, subgraphs={n: body for n, body in graph.subgraphs.items() if n in used})
