"""Makes one unit, under a name, of each match of a pattern.

    %a: int8[1,8,8,4] = conv2d(%x, %w, %b) {...}
    %y: int8[1,8,8,4] = clip(%a) {minimum=0.0, maximum=6.0}
        ->
    %y: int8[1,8,8,4] = call(%x) {body="conv_clip", composite="conv_clip"}
    subgraph @conv_clip = graph @conv_clip(%x: int8[1,8,8,4]) -> (%y) { ...the two nodes... }

The patterns come from the caller. Constants go along into the body. Matches do not overlap, and nothing in
one is read outside; of several that fit at one node, the first in the table counts. `inline` takes them apart
again; an external code generator takes them as they are. Every bit stays. TVM calls this MergeComposite in
Relay and FuseOpsByPattern in Relax.
"""

from __future__ import annotations

from collections.abc import Sequence

from microfold.ir.composite import find_composites
from microfold.ir.graph import Graph
from microfold.ir.outline import MakeCall, Region, outline
from microfold.ir.pattern_table import PatternEntry
from microfold.ir.types import TensorType
from microfold.ops.control.call import Call
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass
from microfold.support.frozen import frozen


@module_pass(opt_level=1)
@frozen
class MergeComposite:
    """Group what matches.

    Attributes:
        patterns: in order of preference.
    """

    patterns: Sequence[PatternEntry] = ()

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        # Not in what is a composite already: it would match once more.
        merged = {n.op.body for n in graph.nodes if isinstance(n.op, Call) and n.op.composite}
        graph = graph.with_bodies(
            lambda name, body: body if name in merged else self.transform(body, context)
        )
        found = find_composites(graph, [("", self.patterns)], declined=context.declined)
        if not found:
            return graph
        for composite in found:
            others = len(composite.nodes) - 1
            reason = f"{composite.entry.name}: with {others} node{'s' if others != 1 else ''} before it"
            context.fired(composite.nodes[-1], reason)
        # As they stand in the graph, so that bodies are numbered in that order.
        return outline(graph, [Region(c.entry.name, c.nodes, _call(c.entry.name)) for c in reversed(found)])


def _call(name: str) -> MakeCall:
    def make(body: str, results: tuple[TensorType, ...]) -> Call:
        return Call(body, results, composite=name)

    return make
