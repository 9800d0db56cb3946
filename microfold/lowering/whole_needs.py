"""Lower bounds of the arena of streaming partitions, from the calls that compute whole tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.views import ALIGNMENT, Views
from microfold.kernels.selection.candidates import LayerCandidates
from microfold.plan.liveness import alive_during, computing_nodes, storages
from microfold.plan.memory import overlaps_of
from microfold.plan.problem import units
from microfold.plan.stream.blocks import shared_in_call
from microfold.plan.stream.region import StreamRegion


class WholeNeeds:
    """Lower bounds of the bytes that each call of a graph needs if it computes whole tensors.

    A call outside of all regions needs as much as in a graph without regions, because all its operands, its
    results and all other live values are resident.

    Args:
        rankings: layers of all computing nodes; the bounds assume the fastest kernels, without scratch.
        elsewhere: values that own storage outside of the arena.

    Attributes:
        behind: by number of nodes, the largest need of any call after these nodes.
        at_ends: bytes that are resident before the first call or after the last one: inputs and outputs.
    """

    def __init__(self, graph: Graph, rankings: Mapping[Node, LayerCandidates], elsewhere: Collection[Value]):
        calls = computing_nodes(graph)
        owners = storages(graph, calls, include_io=True, elsewhere=elsewhere)
        blocks = dict.fromkeys(owners.values())
        alive = alive_during(blocks, len(calls), lambda block: units(block.size))
        begin = sum(units(block.size) for block in blocks if block.first < 0)
        end = sum(units(block.size) for block in blocks if block.last == len(calls))
        self.at_ends = max(begin, end) * ALIGNMENT
        views = Views(graph)
        self._needs: dict[Node, int] = {}
        for call, node in enumerate(calls):
            ranking = rankings[node]
            first = next(iter(ranking.candidates), None)
            if first is not None and first.cost is not None:
                overlaps = overlaps_of(call, ranking.layer, first.kernel, owners, views)
                self._needs[node] = (alive[call] - shared_in_call(overlaps)) * ALIGNMENT
        last_first = (self._needs.get(node, 0) for node in reversed(graph.nodes))
        self.behind = [*accumulate(last_first, max, initial=0)][::-1]

    def outside(self, regions: Sequence[StreamRegion]) -> int:
        """Return the largest need of any call outside of the regions."""
        streamed = {each.node for region in regions for each in region.nodes}
        whole = (node for node in regions[-1].graph.nodes if node not in streamed)
        return max((self._needs.get(node, 0) for node in whole), default=0)
