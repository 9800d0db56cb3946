"""Groups each match of a pattern into one named unit, a composite.

    %a: int8[1,8,8,4] = conv2d(%x, %w, %b) {...}
    %y: int8[1,8,8,4] = clip(%a) {minimum=0.0, maximum=6.0}
        ->
    %y: int8[1,8,8,4] = call(%x) {body="conv_clip", composite="conv_clip"}
    subgraph @conv_clip = graph @conv_clip(%x: int8[1,8,8,4]) -> (%y) { ...the two nodes... }

The caller provides the patterns, as `PatternEntry` or as tuples `(name, pattern)` and `(name, pattern,
check)`. Earlier patterns have priority over the whole graph, and matches do not overlap. Only the result of a
match may be read outside, unless its `PatternEntry` admits several results: then the call returns all of
them. Constants move into the body unless `bind_constants` is false. `inline` resolves composites again; an
external code generator receives them unchanged. All bits stay the same. TVM calls this MergeComposite in
Relay and FuseOpsByPattern in Relax.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from microfold.ir.composite import Composite, find_composites
from microfold.ir.functions import transform_named
from microfold.ir.graph import Graph
from microfold.ir.outline import MakeCall, OutlinedRegion, outline
from microfold.ir.pattern import DataflowPattern
from microfold.ir.pattern_table import Check, PatternEntry, pattern_entries
from microfold.ir.types import TensorType
from microfold.ops.control.call import Call
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass

Row = PatternEntry | tuple[str, DataflowPattern] | tuple[str, DataflowPattern, Check]


@module_pass(opt_level=1)
class MergeComposite(Struct, frozen=True):
    """Grouping of the matches of a pattern table.

    Attributes:
        patterns: pattern table, in order of priority.
        bind_constants: whether bodies contain their constants; otherwise they are operands of the calls.
        entry_functions: names of the graphs to search, including all subgraphs that they run; empty: all.

    Raises:
        InputError: a row is no pattern, or no graph has a name of `entry_functions`.
    """

    patterns: Sequence[Row] = ()
    bind_constants: bool = True
    entry_functions: tuple[str, ...] = ()

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        entries = pattern_entries(self.patterns)
        # The body of a composite would match again.
        merged = _composite_bodies(graph, False)

        def merge(body: Graph) -> Graph:
            if id(body) in merged:
                return body
            found = find_composites(body, [("", entries)], declined=context.declined)
            for composite in found:
                others = len(composite.nodes) - 1
                reason = f"{composite.entry.name}: with {others} node{'s' if others != 1 else ''} before it"
                context.fired(composite.nodes[-1], reason)
            # In the order of the graph, so that bodies are numbered in this order.
            return outline(body, [self._region(each) for each in reversed(found)]) if found else body

        return transform_named(graph, self.entry_functions, merge, with_callees=True)

    def _region(self, found: Composite) -> OutlinedRegion:
        name = found.entry.name
        return OutlinedRegion(name, found.nodes, _call(name), bind_constants=self.bind_constants)


def _composite_bodies(graph: Graph, inside: bool) -> set[int]:
    """Return the identities of the bodies of composites, and of the graphs within them."""
    called = {node.op.body for node in graph.nodes if isinstance(node.op, Call) and node.op.composite}
    bodies = (_composite_bodies(body, inside or name in called) for name, body in graph.subgraphs.items())
    return ({id(graph)} if inside else set[int]()).union(*bodies)


def _call(name: str) -> MakeCall:
    def make(body: str, results: tuple[TensorType, ...]) -> Call:
        return Call(body, results, composite=name)

    return make
