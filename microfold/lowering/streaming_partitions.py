"""Streaming partitions (`StreamingPartitions`) of a model: which parts are computed row by row, and the
kernels of rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from microfold.analysis.ranges import Ranges
from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.views import Views, needs_no_code
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.reduce.pixel_sums import MEANS, SUMS
from microfold.kernels.selection.candidates import Candidate, LayerCandidates, candidates, no_kernel_reason
from microfold.lowering.pixel_sums import means_of_sums, with_means_of_sums
from microfold.lowering.scope import LoweringScope
from microfold.lowering.whole_needs import WholeNeeds
from microfold.options import Options
from microfold.plan.liveness import alive_between, storages
from microfold.plan.stream.planner import StreamPlanner
from microfold.plan.stream.region import StreamRegion, region_of
from microfold.plan.stream.row_node import Form, RowNode, as_row_node, sums_as_row_node
from microfold.plan.stream.windows import RegionSchedule, schedule_region

# Size of the shortlist: the partitions with the smallest expected arenas.
SHORTLIST_SIZE = 4
# Number of places where a region that does not begin with the input may begin, and number of places where it
# may end; maximum number of regions after the first one; and number of partitions to which further regions
# are added.
ENDS = 4
FURTHER_REGIONS = 2
FURTHER_EVALUATIONS = 2
# Maximum number of events of all evaluated partitions, and of the partitions that begin with the input. Each
# layer of a partition has events for each of its rows. Without limits, the time would grow with the square of
# a chain's length. Models for microcontrollers have up to 17,000 and 8,000 events.
MOST_EVENTS, MOST_EVENTS_OF_PREFIXES = 1 << 15, 1 << 14


def streamed_inputs(graph: Graph, options: Options) -> tuple[Value, ...]:
    """Return the inputs that are streamed: passed row by row, or read in the caller's memory; at most one.

    All other inputs are resident.
    """
    if options.io == "arena":
        return ()
    if options.io == "caller":
        return graph.inputs if len(graph.inputs) == 1 else ()
    views = Views(graph)
    shapes = [*graph.inputs, *(value for node in graph.nodes for value in node.outputs)]
    images = {views[v].root for v in shapes if v.type.rank == 4 and v.type.shape[0] == 1}
    found = [v for v in graph.inputs if v in images]
    return tuple(sorted(found, key=lambda value: -value.type.nbytes)[:1])


class StreamingPartitions:
    """Streaming partitions of a graph: which of its nodes may be computed row by row."""

    def __init__(self, scope: LoweringScope, options: Options):
        graph = scope.graph
        self.scope = scope
        self.options = options
        self.state = scope.state_size
        self.reason = ""
        views = Views(graph)
        self.pushed = streamed_inputs(graph, options)
        # Skip leading reshapes.
        self._first = next((i for i, node in enumerate(graph.nodes) if not needs_no_code(node)), 0)
        # Results in buffers of the caller, into which no rows are computed.
        self._outputs = {views[v].root for v in graph.outputs} if options.io == "caller" else set[Value]()
        self._elsewhere = self._outputs | ({*graph.inputs} if options.io == "caller" else set[Value]())
        self._layers = {ranking.layer.node: ranking for ranking in scope.rankings}
        self._row_nodes: dict[Node, RowNode | str] = {}
        self._windows: dict[Hashable, RegionSchedule] = {}
        self._planners: dict[Hashable, StreamPlanner] = {}
        self._ranked: dict[tuple[RowNode, Form], LayerCandidates] = {}
        self._events = 0  # of the evaluated partitions
        if scope.inner:
            self.reason = "models with loops or conditions are computed whole"
        elif options.io == "rows" and not self.pushed:
            self.reason = "none of its inputs is an image [1, H, W, C]"

    @property
    def ranges(self) -> Ranges:
        """Proved ranges of the integers of the graph."""
        return self.scope.ranges

    @cached_property
    def prefixes(self) -> list[StreamRegion]:
        """Regions that begin with the first layer."""
        return [*self.regions_from(self._first)]

    def regions_from(self, start: int) -> Iterator[StreamRegion]:
        """Yield the regions that begin after `start` nodes of the graph."""
        return self._regions(self.scope.graph, start)

    @cached_property
    def shortlist(self) -> list[StreamPlanner]:
        """Partitions with the smallest arenas, as far as sizes without scratch tell."""
        if self.reason:
            return []
        graph = self.scope.graph
        found = self._needs_of_prefixes()
        if self.options.io != "rows":
            regions = self._around_peak(graph, self._first + 1)
            found += self._needs(([region] for region in regions), _max_shortlist(found))
        found.sort(key=lambda each: each[0])
        for need, planner in found[:FURTHER_EVALUATIONS]:
            found += self._with_further_regions(need, planner)
        # The sort is stable, so that of equal partitions the one with fewer regions comes first.
        found.sort(key=lambda each: each[0])
        return [planner for _, planner in found[:SHORTLIST_SIZE]]

    def _needs_of_prefixes(self) -> list[tuple[int, StreamPlanner]]:
        """Return partitions with a single region from the start, each with the bytes of its windows.

        The search ends if longer regions need no less than the best ones found, or have too many events.
        """
        found: list[tuple[int, StreamPlanner]] = []
        least = 0
        behind = self.whole_needs.behind
        regions = self._regions(
            self.scope.graph, self._first, lambda end: behind[end] < _max_shortlist(found)
        )
        for region in regions:
            if least >= _max_shortlist(found):
                break
            if self._events > MOST_EVENTS_OF_PREFIXES:
                break
            for need, planner in self._needs([[region]]):
                found.append((need, planner))
                # A longer region contains this one, but keeps its border tensors as windows. Its need is at
                # least this.
                least = max(least, planner.least_need_before(self.first_kernels(planner), region.fronts))
        return found

    def _with_further_regions(self, need: int, planner: StreamPlanner) -> list[tuple[int, StreamPlanner]]:
        """Return the partition with further regions after it, while each of them needs fewer bytes."""
        found: list[tuple[int, StreamPlanner]] = []
        for _ in range(FURTHER_REGIONS):
            if not planner.needs_most_behind:
                break
            regions = self._around_peak(planner.whole, planner.regions[-1].end)
            tried = self._needs(([*planner.regions, region] for region in regions), need)
            if not tried or min(tried, key=lambda each: each[0])[0] >= need:
                break
            need, planner = min(tried, key=lambda each: each[0])
            found.append((need, planner))
        return found

    @cached_property
    def whole_needs(self) -> WholeNeeds:
        """Lower bounds from the calls that compute whole tensors."""
        return WholeNeeds(self.scope.graph, self._layers, self._elsewhere)

    def _needs(
        self, candidates: Iterable[Sequence[StreamRegion]], most: float = math.inf
    ) -> list[tuple[int, StreamPlanner]]:
        """Return planners of partitions, with the bytes that their windows need.

        Args:
            most: bytes; partitions are skipped if calls outside of their regions need as much.
        """
        found: list[tuple[int, StreamPlanner]] = []
        for regions in candidates:
            if self._events > MOST_EVENTS:
                break
            if self.whole_needs.outside(regions) >= most:
                continue
            planner = self.planner(regions)
            self._events += planner.end
            try:
                kernels = self.first_kernels(planner)
            except InputError as refusal:
                self.reason = self.reason or str(refusal)
            else:
                found.append((planner.least_need(kernels), planner))
        return found

    def _regions(
        self, graph: Graph, start: int, may_end: Callable[[int], bool] = bool
    ) -> Iterator[StreamRegion]:
        """Yield the regions that begin with a node.

        Args:
            may_end: whether a region may end after this number of nodes of the graph.
        """
        rows: list[RowNode] = []
        for index, node in enumerate(graph.nodes[start:], start):
            if rows and node in self._layers:
                parts = means_of_sums(self._layers[node].layer)
                if parts is not None:
                    yield from self._with_sums(graph, node, parts, rows, start)
            found = self._by_rows(node)
            if isinstance(found, str):
                self.reason = self.reason or f"{node.op.name} %{node.outputs[0].short_name}: {found}"
                break
            rows.append(found)
            if may_end(index + 1):
                region = self._region(graph, rows, start)
                if region is not None:
                    yield region

    def _region(self, graph: Graph, rows: Sequence[RowNode], start: int) -> StreamRegion | None:
        """Return a region that can be planned; None if it cannot."""
        region = region_of(graph, rows, start, self.pushed)
        if isinstance(region, str):
            self.reason = self.reason or region
            return None
        if start == self._first and self.options.io == "rows" and not region.inputs:
            self.reason = self.reason or "no part of the input is read"
            return None
        views = Views(graph)
        elsewhere = next((v for v in region.sources if views[v].root in self._elsewhere), None)
        if elsewhere is not None:
            self.reason = (
                self.reason or f"%{elsewhere.short_name} is in the caller's memory, without room for padding"
            )
            return None
        return region if self._outputs.isdisjoint(region.fronts) else None

    def _around_peak(self, graph: Graph, start: int) -> Iterator[StreamRegion]:
        """Yield regions around the call of largest need, if the graph from some node on is not streamed.

        They begin and end at places with few resident bytes.
        """
        nodes = [node for node in graph.nodes if not needs_no_code(node)]
        owners = storages(graph, nodes, include_io=True, elsewhere=self._elsewhere)
        held = alive_between(dict.fromkeys(owners.values()), len(nodes))
        places = {node: index for index, node in enumerate(nodes)}
        calls = [index for index, node in enumerate(graph.nodes) if index >= start and node in places]
        if not calls:
            return
        peak = max(calls, key=lambda index: held.during[places[graph.nodes[index]]])

        def before(index: int) -> tuple[int, int]:
            return held.before[places[graph.nodes[index]]], abs(index - peak)

        begins = [index for index in calls if index <= peak]
        for begin in sorted(begins, key=before)[:ENDS]:
            ends = sorted((index for index in calls if index > peak), key=before)[:ENDS]
            # A region ends before the next call, and includes reshapes of its last result.
            last = (max(each for each in calls if each < end) for end in ends)
            wanted = {*(each + 1 for each in last), calls[-1] + 1}
            yield from self._regions(graph, begin, wanted.__contains__)

    def planner(self, regions: Sequence[StreamRegion]) -> StreamPlanner:
        """Return the planner of a partition, which is cached for later searches."""
        key = (*(region.key for region in regions),)
        if key not in self._planners:
            layers = {node: ranking.layer for node, ranking in self._layers.items()}
            self._planners[key] = StreamPlanner(
                regions, layers, self._elsewhere, self.options.align, self._windows_of
            )
        return self._planners[key]

    def _windows_of(self, region: StreamRegion, margins: Mapping[Value, tuple[int, int]]) -> RegionSchedule:
        """Return the schedule of a region, which all partitions with the same margins share."""
        key = region.key, tuple(margins[value] for value in region.held)
        if key not in self._windows:
            self._windows[key] = schedule_region(region, margins)
        return self._windows[key]

    def _with_sums(
        self, graph: Graph, pool: Node, parts: tuple[Node, Node], rows: Sequence[RowNode], start: int
    ) -> Iterator[StreamRegion]:
        """Yield the partition that ends with a global pool, whose sums are in the region."""
        changed = with_means_of_sums(graph, pool, parts)
        sums, means = (replace(self._layers[pool].layer, node=part) for part in parts)
        region = self._region(changed, [*rows, sums_as_row_node(sums)], start)
        if region is not None:
            self._layers[parts[1]] = only(MEANS[parts[1].output.type.dtype], means)
            yield region

    def _by_rows(self, node: Node) -> RowNode | str:
        if node not in self._row_nodes:
            ranking = self._layers.get(node)
            if ranking is None:
                found = "it computes nothing: its result is a view of its operand"
            elif ranking.fixed:
                found = "external code computes its whole result"
            else:
                found = as_row_node(ranking.layer)
            self._row_nodes[node] = found
        return self._row_nodes[node]

    def streamed_cost(self, node: Node) -> float:
        """Return a lower bound of the cycles of all calls for one row each; infinite if no kernel exists."""
        rows = self._by_rows(node)
        if isinstance(rows, str):
            return math.inf
        try:
            forms = Counter(rows.forms).items()
            return sum(self.ranking(rows, form, runs).least_cost * runs for form, runs in forms)
        except InputError:
            return math.inf

    def cost(self, node: RowNode) -> float:
        """Return the least estimated cost of all calls of a node.

        Raises:
            InputError: no kernel computes its rows.
        """
        runs = Counter(node.forms)
        return sum((self.ranking(node, f, n).candidates[0].cost or 0.0) * n for f, n in runs.items())

    def whole(self, value: Value) -> Value:
        """Return the value whose columns a value has: here the value itself."""
        return value

    def rankings(self, planner: StreamPlanner) -> list[LayerCandidates]:
        """Return all layers with the kernels considered for them."""
        return [
            self._layers[each.layer.node]
            if each.band is None
            else self.ranking(each.band.node, each.band.form, len(each.band.events))
            for each in planner.planned
        ]

    def first_kernels(self, planner: StreamPlanner) -> list[Kernel]:
        """Return the fastest kernel of each layer, regardless of the arena."""
        return [ranking.candidates[0].kernel for ranking in self.rankings(planner)]

    def ranking(self, node: RowNode, form: Form, runs: int) -> LayerCandidates:
        """Return the kernels for a band."""
        if (node, form) not in self._ranked:
            layer = node.bands[form].layer
            if node.accumulates:
                return only(SUMS[layer.node.operands[0].type.dtype], layer, runs)
            found = candidates(layer, self.scope.guidance)
            if not found or found[0].cost is None:
                raise InputError(
                    f"rows of {node.node.op.name} %{node.output.short_name} need a kernel for images of "
                    f"{layer.node.operands[0].type}; there is none: {no_kernel_reason(layer, found)}"
                )
            self._ranked[node, form] = LayerCandidates(layer, found, runs=runs)
        return self._ranked[node, form]


def _max_shortlist(found: Iterable[tuple[int, StreamPlanner]]) -> float:
    """Return the bytes from which on a further partition does not belong to the shortlist."""
    return last_of_first((need for need, _ in found), SHORTLIST_SIZE)


def last_of_first(sizes: Iterable[int], count: int) -> float:
    """Return the largest of the `count` smallest sizes; infinite if there are fewer sizes."""
    first = sorted(sizes)[:count]
    return first[-1] if len(first) == count else math.inf


def only(kernel: Kernel, layer: LayerContext, runs: int = 1) -> LayerCandidates:
    """Return a layer with a single possible kernel."""
    return LayerCandidates(layer, [Candidate(kernel, kernel.cycles(layer), None)], fixed=True, runs=runs)
