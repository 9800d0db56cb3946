"""Makes a function of every region for an external code generator.

    %x#1: int8[1,8,8,4] = compiler_begin(%x) {compiler="cmsis-nn"}
    %y: int8[1,8,8,4] = conv2d(%x#1, %w, %b) {...}
    %y#1: int8[1,8,8,4] = compiler_end(%y) {compiler="cmsis-nn", composite="conv2d"}
        ->
    %y: int8[1,8,8,4] = call(%x) {body="cmsis_nn_0", composite="conv2d", compiler="cmsis-nn"}
    subgraph @cmsis_nn_0 = graph @cmsis_nn_0(%x: int8[1,8,8,4]) -> (%y) { %y: ... = conv2d(%x, %w, %b) {...} }

The boundary nodes are removed, and with them all traces of the annotation. All bits stay the same.
"""

from __future__ import annotations

import re

from microfold.analysis.compiler_regions import CompilerRegion, compiler_regions
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, rewire
from microfold.ir.outline import MakeCall, OutlinedRegion, outline
from microfold.ir.types import TensorType
from microfold.ops.control.call import Call
from microfold.ops.external.compiler_region import CompilerBegin, CompilerEnd
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=0, mandatory=True)
def partition_graph(graph: Graph, context: PassContext) -> Graph:
    """Outline every region as a function."""
    regions = compiler_regions(graph)
    replaced: dict[Value, Value] = {}
    kept: dict[Node, Node] = {}
    for node in graph.nodes:
        if isinstance(node.op, CompilerBegin | CompilerEnd):
            replaced[node.output] = node.operands[0]
        else:
            kept[node] = rewire(node, replaced)
    if not replaced:
        return graph
    for region in regions:
        context.fired(region.nodes[-1], f"{len(region.nodes)} nodes go to {region.compiler}")
    stripped = graph.with_nodes(kept.values(), replaced=replaced)
    return outline(
        stripped,
        [
            OutlinedRegion(
                f"{_identifier(region.compiler)}_{index}", tuple(kept[n] for n in region.nodes), _call(region)
            )
            for index, region in enumerate(regions)
        ],
    )


def _identifier(compiler: str) -> str:
    return re.sub(r"\W", "_", compiler)


def _call(region: CompilerRegion) -> MakeCall:
    def make(body: str, results: tuple[TensorType, ...]) -> Call:
        return Call(body, results, composite=region.composite, compiler=region.compiler)

    return make
