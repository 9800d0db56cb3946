"""Models of which some layers are computed row by row: which these are, and with which kernels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from microfold.errors import InputError, Problem, UnsupportedModelError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.views import Views, needs_no_code
from microfold.kernels.band import lowered, unsupported_rows
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.reduce.pixel_sums import MeanOfSumsInt8, PixelSumsInt8
from microfold.kernels.selection.cheapest import Candidate, Ranking, candidates, why_none
from microfold.kernels.selection.decide import decide
from microfold.kernels.selection.policy import Policy
from microfold.kernels.selection.ram_budget import leanest_size
from microfold.kernels.selection.row_weights import widen_weights
from microfold.lowering.pixel_sums import means_of_sums, with_means_of_sums
from microfold.lowering.scope import Scope
from microfold.options import Options
from microfold.plan.liveness import alive_between, storages
from microfold.plan.overlap import align
from microfold.plan.stream.planner import StreamMemory, StreamPlanner
from microfold.plan.stream.region import Form, Region, RowNode, by_rows, region_of, sums_by_rows

# Cuts that are looked at closely: those that promise the smallest arenas.
CLOSE_LOOKS = 4
# Places where regions that do not begin with the input may begin, and as many where they may end; how many
# regions there may be behind the first one, and for how many of the best cuts these are looked for.
ENDS = 4
FURTHER_REGIONS = 2
FURTHER_LOOKS = 2
# Cuts of which the rows are tried in rings, where the RAM is limited.
RING_LOOKS = 2
# Instructions of a moved byte, the loops and calls around the copies included.
MOVED_BYTE = 1.0
# Times as many instructions as without rings that are taken for a smaller arena where nothing is asked for.
FREE = 1.01
# With a limit of RAM, cuts whose calls are tried with more rows: so many, and others than the best one only
# if they take less than so many times as long.
FINALISTS, NEARLY = 3, 1.05
# Rows that a call may compute, the part of the instructions that they must save to be looked at closely, and
# how many times that is done: for the best cut, and for others.
WIDTHS = (2, 3, 4, 5, 6, 8)
WORTHWHILE = 0.01
WIDER_LOOKS, OTHER_WIDER_LOOKS = 24, 4


@dataclass(frozen=True, eq=False)
class Streamed:
    """A model of which some parts are computed row by row.

    Attributes:
        rankings: of all layers.
        chosen: the kernel of each.
        calls: of the kernels.
    """

    planner: StreamPlanner
    rankings: Sequence[Ranking]
    chosen: Sequence[Candidate]
    calls: Sequence[KernelCall]
    memory: StreamMemory

    @property
    def rings(self) -> list[Value]:
        """Whose rows are kept in rings."""
        return [value for region in self.planner.regions for value in region.rings]

    @property
    def cost(self) -> float:
        """Estimated instructions of the layers' calls, and of the moves within windows."""
        calls = sum((c.cost or 0.0) * r.runs for c, r in zip(self.chosen, self.rankings, strict=True))
        return calls + self.moves

    @property
    def moves(self) -> float:
        """Of the moves alone."""
        return MOVED_BYTE * self.planner.moved


def streamed(scope: Scope, options: Options) -> Streamed:
    """The cut with the smallest arena; with a limit of RAM, the fastest one that fits.

    Raises:
        UnsupportedModelError: not even the first layer works by rows.
        InputError: nothing fits the RAM or the flash that the options allow.
    """
    cuts = Cuts(scope, options)
    refusals: list[InputError] = []
    looked_at = cuts.looked_at(cuts.promising, refusals)
    if options.ram is not None:
        looked_at += cuts.looked_at(cuts.with_rings, refusals)
    if not looked_at:
        raise cuts.refusal(refusals)
    best = min(looked_at, key=cuts.order)
    if options.ram is None:
        best = cuts.widened(cuts.with_fewer_rings(cuts.with_free_rings(best)))
    else:
        near = sorted((found for found in looked_at if found.cost < NEARLY * best.cost), key=cuts.order)
        # Kernels that read no rings may gain more by computing several rows than rings save.
        plain = [found for found in near if not found.rings]
        others = dict.fromkeys([*near[1:FINALISTS], *plain[:1]])
        others.pop(best, None)
        best = cuts.widened(cuts.with_fewer_rings(best))
        best = min([best, *(cuts.widened(each, OTHER_WIDER_LOOKS) for each in others)], key=cuts.order)
    if options.ram is None and not best.memory.arena.proved:
        kernels = [candidate.kernel for candidate in best.chosen]
        best = replace(best, memory=best.planner.plan(kernels, best.calls, thorough=True))
    best.memory.check([candidate.kernel for candidate in best.chosen])
    return best


def pushed_inputs(graph: Graph, options: Options) -> tuple[Value, ...]:
    """The inputs whose rows are handed in, or read in the caller's memory: at most one.

    Others are there whole.
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


class Cuts:
    """Which nodes may be computed row by row."""

    def __init__(self, scope: Scope, options: Options):
        graph = scope.graph
        self.scope = scope
        self.options = options
        self.state = sum(align(state.value.type.nbytes) for state in graph.state)
        self.reason = ""
        views = Views(graph)
        self.pushed = pushed_inputs(graph, options)
        # What comes before only gives the input another shape.
        self._first = next((i for i, node in enumerate(graph.nodes) if not needs_no_code(node)), 0)
        # Results that the caller wants in buffers of its own: no rows are computed into these.
        self._outputs = {views[v].root for v in graph.outputs} if options.io == "caller" else set[Value]()
        self._elsewhere = self._outputs | ({*graph.inputs} if options.io == "caller" else set[Value]())
        self._layers = {ranking.layer.node: ranking for ranking in scope.rankings}
        self._by_address: dict[Node, bool] = {}
        self._row_nodes: dict[Node, RowNode | str] = {}
        self._ranked: dict[tuple[RowNode, Form], Ranking] = {}
        if scope.inner:
            self.reason = "models with loops or conditions are computed whole"
        elif options.io == "rows" and not self.pushed:
            self.reason = "none of its inputs is an image [1, H, W, C]"

    def order(self, found: Streamed) -> tuple[float, float]:
        """What is better comes first: twice the arena for half of the time is an even exchange.

        Under a limit of RAM only time counts, and only the arena where flash is to be small.
        """
        cost, size = found.cost, found.memory.size
        if self.options.ram is not None:
            return cost, size
        return (size, cost) if self.options.optimize == "size" else (size * cost, size)

    def looked_at(self, planners: Iterable[StreamPlanner], refusals: list[InputError]) -> list[Streamed]:
        """Cuts with their kernels; reasons of those that do not fit come to the refusals."""
        found: list[Streamed] = []
        for planner in planners:
            try:
                found.append(self.decided(planner))
            except InputError as refusal:
                refusals.append(refusal)
        return found

    @property
    def with_rings(self) -> Iterator[StreamPlanner]:
        """The best cuts, with rings for all values that may be rings."""
        for planner in self.promising[:RING_LOOKS]:
            ringed = self.ringed(planner)
            if ringed is not None:
                yield ringed

    def ringed(self, planner: StreamPlanner, chosen: Collection[Value] | None = None) -> StreamPlanner | None:
        """The same cut with rings for some values; None if there are none that kernels can read.

        Args:
            chosen: default: all that may be.
        """
        regions: list[Region] = []
        for region in planner.regions:
            values = [
                value
                for value in region.may_be_rings
                if (chosen is None or value in chosen)
                and all(
                    self._reads_rows(node)
                    for node, index in region.readers[value]
                    if node.reads_several(index)
                )
            ]
            regions.append(region.with_rings(values))
        none = chosen is None and not any(region.rings for region in regions)
        return None if none else self._planner(regions)

    def _reads_rows(self, node: RowNode) -> bool:
        """Whether a kernel takes addresses of the rows that a node reads."""
        if node.node not in self._by_address:
            layers = (band.reading_rows.layer for band in node.bands.values())
            policy = Policy(self.options.optimize, self.scope.model)
            found = (candidates(layer, policy) for layer in layers)
            self._by_address[node.node] = all(each and each[0].cost is not None for each in found)
        return self._by_address[node.node]

    def with_free_rings(self, found: Streamed) -> Streamed:
        """The cut with rings where the arena is smaller so, and the kernels that fit it take about as long.

        Where the arena counts more than time, it may be longer.
        """
        ringed = self.ringed(found.planner)
        if ringed is None or ringed.least_need(self._first_kernels(ringed)) >= found.memory.size:
            return found
        longest = math.inf if self.options.optimize == "size" else found.cost * FREE
        tried = self.looked_at([ringed], [])
        better = (t for t in tried if t.memory.size < found.memory.size and t.cost <= longest)
        return next(better, found)

    def with_fewer_rings(self, found: Streamed) -> Streamed:
        """The same without rings that are there in vain: they cost tables of addresses."""
        limit = self._limit(found)
        for value in found.rings:
            rings = {*found.rings} - {value}
            fewer = self.ringed(found.planner, rings)
            if fewer is None or fewer.least_need(self._first_kernels(fewer)) > limit:
                continue
            tried = self.looked_at([fewer], [])
            if tried and tried[0].memory.size <= limit and tried[0].cost <= found.cost:
                found = tried[0]
        return found

    def _limit(self, found: Streamed) -> int:
        """Bytes that the arena may have: what is allowed, or else, as many as it has anyway."""
        allowed = self.options.ram
        return allowed - self.state if allowed is not None else found.memory.size

    @cached_property
    def promising(self) -> list[StreamPlanner]:
        """Cuts with the smallest arenas, as far as sizes without scratch tell."""
        if self.reason:
            return []
        graph = self.scope.graph
        found = self._needs([region] for region in self._regions(graph, self._first))
        if self.options.io != "rows":
            found += self._needs([region] for region in self._around_peak(graph, self._first + 1))
        found.sort(key=lambda each: each[0])
        for need, planner in found[:FURTHER_LOOKS]:
            found += self._with_further_regions(need, planner)
        # The fewest regions of equals come first.
        found.sort(key=lambda each: each[0])
        return [planner for _, planner in found[:CLOSE_LOOKS]]

    def _with_further_regions(self, need: int, planner: StreamPlanner) -> list[tuple[int, StreamPlanner]]:
        """The same cut with other regions behind it, as long as each of them lets windows need less."""
        found: list[tuple[int, StreamPlanner]] = []
        for _ in range(FURTHER_REGIONS):
            if not planner.needs_most_behind:
                break
            regions = self._around_peak(planner.whole, planner.regions[-1].end)
            tried = self._needs([*planner.regions, region] for region in regions)
            if not tried or min(tried, key=lambda each: each[0])[0] >= need:
                break
            need, planner = min(tried, key=lambda each: each[0])
            found.append((need, planner))
        return found

    def _needs(self, candidates: Iterable[Sequence[Region]]) -> list[tuple[int, StreamPlanner]]:
        """Planners of regions, with the bytes that their windows need."""
        found: list[tuple[int, StreamPlanner]] = []
        for regions in candidates:
            planner = self._planner(regions)
            try:
                kernels = self._first_kernels(planner)
            except InputError as refusal:
                self.reason = self.reason or str(refusal)
            else:
                found.append((planner.least_need(kernels), planner))
        return found

    def _regions(self, graph: Graph, start: int, ends: Collection[int] = ()) -> Iterator[Region]:
        """Those that begin with a node.

        Args:
            ends: how many nodes come before those behind the region; none: any number.
        """
        rows: list[RowNode] = []
        for index, node in enumerate(graph.nodes[start:], start):
            if rows and node in self._layers:
                parts = means_of_sums(self._layers[node].layer)
                if parts is not None:
                    yield from self._with_sums(graph, node, parts, rows, start)
            found = self._by_rows(node)
            if isinstance(found, str):
                self.reason = self.reason or f"{node.op.name} %{node.outputs[0].name}: {found}"
                break
            rows.append(found)
            if not ends or index + 1 in ends:
                region = self._region(graph, rows, start)
                if region is not None:
                    yield region

    def _region(self, graph: Graph, rows: Sequence[RowNode], start: int) -> Region | None:
        """One that can be planned."""
        region = region_of(graph, rows, start, self.pushed)
        if isinstance(region, str):
            self.reason = self.reason or region
            return None
        if start == self._first and self.options.io == "rows" and not region.inputs:
            self.reason = self.reason or "nothing of the input is read"
            return None
        views = Views(graph)
        elsewhere = next((v for v in region.sources if views[v].root in self._elsewhere), None)
        if elsewhere is not None:
            self.reason = (
                self.reason or f"%{elsewhere.name} is in the caller's memory, without room for padding"
            )
            return None
        return region if self._outputs.isdisjoint(region.fronts) else None

    def _around_peak(self, graph: Graph, start: int) -> Iterator[Region]:
        """Regions around the call that needs most, if all of a graph from some node on is computed whole.

        They begin and end where least is held whole.
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
            # Up to the call before; between them are other shapes of its result.
            last = (max(each for each in calls if each < end) for end in ends)
            yield from self._regions(graph, begin, {*(each + 1 for each in last), calls[-1] + 1})

    def _planner(self, regions: Sequence[Region]) -> StreamPlanner:
        layers = {node: ranking.layer for node, ranking in self._layers.items()}
        return StreamPlanner(regions, layers, self._elsewhere, self.options.align)

    def _with_sums(
        self, graph: Graph, pool: Node, parts: tuple[Node, Node], rows: Sequence[RowNode], start: int
    ) -> Iterator[Region]:
        """The cut behind a pool over the whole image, of which the region has the sums."""
        changed = with_means_of_sums(graph, pool, parts)
        sums, means = (replace(self._layers[pool].layer, node=part) for part in parts)
        region = self._region(changed, [*rows, sums_by_rows(sums)], start)
        if region is not None:
            self._layers[parts[1]] = _only(MeanOfSumsInt8(), means)
            yield region

    def _by_rows(self, node: Node) -> RowNode | str:
        if node not in self._row_nodes:
            ranking = self._layers.get(node)
            if ranking is None:
                found = "it computes nothing: its result lies where its operand is"
            elif ranking.fixed:
                found = "external code computes it, and whole"
            else:
                found = by_rows(ranking.layer)
            self._row_nodes[node] = found
        return self._row_nodes[node]

    def rankings(self, planner: StreamPlanner) -> list[Ranking]:
        """All layers with the kernels considered for them."""
        return [
            self._layers[each.layer.node]
            if each.band is None
            else self._ranking(each.band.node, each.band.form, len(each.band.events))
            for each in planner.planned
        ]

    def _first_kernels(self, planner: StreamPlanner) -> list[Kernel]:
        """The fastest ones, whatever the arena."""
        return [ranking.candidates[0].kernel for ranking in self.rankings(planner)]

    def _ranking(self, node: RowNode, form: Form, runs: int) -> Ranking:
        """The kernels of a band."""
        if (node, form) not in self._ranked:
            layer = node.bands[form].layer
            if node.accumulates:
                return _only(PixelSumsInt8(), layer, runs)
            found = candidates(layer, Policy(self.options.optimize, self.scope.model))
            if not found or found[0].cost is None:
                raise InputError(
                    f"rows of {node.node.op.name} %{node.output.name} need a kernel for images of "
                    f"{layer.node.operands[0].type}; there is none: {why_none(layer, found)}"
                )
            self._ranked[node, form] = Ranking(layer, found, runs=runs)
        return self._ranked[node, form]

    def decided(self, planner: StreamPlanner) -> Streamed:
        """Kernels and places for a cut.

        Raises:
            InputError: nothing fits the RAM or the flash that the options allow.
        """
        rankings = self.rankings(planner)
        chosen = decide(rankings, self.scope.model, self.options, planner, self.state)
        if self.options.optimize == "balanced" and self.options.flash is None:
            chosen = self._with_wide_weights(planner, rankings, chosen)
        kernels = [candidate.kernel for candidate in chosen]
        for kernel, each in zip(kernels, planner.planned, strict=True):
            reason = unsupported_rows(kernel, each.band.band) if each.band is not None else None
            if reason is not None:
                name = each.layer.node.output.name
                raise InputError(f"{kernel.name} cannot compute %{name} by rows: {reason}")
        calls = [lowered(kernel, r.layer) for kernel, r in zip(kernels, rankings, strict=True)]
        return Streamed(planner, rankings, chosen, calls, planner.plan(kernels, calls))

    def _with_wide_weights(
        self, planner: StreamPlanner, rankings: Sequence[Ranking], chosen: Sequence[Candidate]
    ) -> list[Candidate]:
        """The choices with wider weights where these pay, in an arena that is not larger than it may be."""
        limit = self.options.ram
        if limit is None:
            kernels = [candidate.kernel for candidate in chosen]
            calls = [lowered(kernel, r.layer) for kernel, r in zip(kernels, rankings, strict=True)]
            return widen_weights(rankings, chosen, planner, planner.plan(kernels, calls).size)
        return widen_weights(rankings, chosen, planner, limit - self.state)

    def widened(self, found: Streamed, looks: int = WIDER_LOOKS) -> Streamed:
        """The same cut with calls that compute several rows, where that costs less.

        Every row more is one more in the windows on both sides of a layer. So this is for layers beside which
        the arena has room: what the options allow, or else, as much as it has anyway.
        """
        limit = self._limit(found)
        for node, width in self._worthwhile(found)[:looks]:
            planner = self._with_width(found.planner, node, width)
            if planner is None or planner.least_need(self._first_kernels(planner)) > limit:
                continue
            try:
                wider = self.decided(planner)
            except InputError:
                continue
            if wider.memory.size <= limit and wider.cost < found.cost and _shares_constants(wider, node):
                found = wider
        return found

    def _worthwhile(self, found: Streamed) -> list[tuple[Node, int]]:
        """Layers and numbers of rows a call, those that save most first; of a layer, few rows first."""
        saved: list[tuple[float, Node, int]] = []
        for node in (node for region in found.planner.regions for node in region.nodes):
            if node.accumulates:
                continue
            least = self._cost(node)
            for width in WIDTHS:
                wide = by_rows(node.layer, width)
                if node.by_address and not isinstance(wide, str):
                    wide = replace(wide, by_address=True)
                if width >= len(node.parts) or isinstance(wide, str):
                    break
                cost = self._cost(wide)
                if least - cost > WORTHWHILE * found.cost:
                    saved.append((least - cost, node.node, width))
                    least = cost
        return [(node, width) for _, node, width in sorted(saved, key=lambda each: -each[0])]

    def _cost(self, node: RowNode) -> float:
        """The least estimate of all calls of a node."""
        runs = Counter(node.forms)
        return sum((self._ranking(node, f, n).candidates[0].cost or 0.0) * n for f, n in runs.items())

    def _with_width(self, planner: StreamPlanner, node: Node, width: int) -> StreamPlanner | None:
        """A cut with other calls for a node."""
        changed: list[Region] = []
        for region in planner.regions:
            nodes = [by_rows(n.layer, width) if n.node is node else n for n in region.nodes]
            rows = [n for n in nodes if not isinstance(n, str)]
            found = region_of(region.graph, rows, region.start, self.pushed)
            if isinstance(found, str):
                return None
            # Where calls for more rows read no rings, their windows are moved again.
            changed.append(found.with_rings([value for value in region.rings if value in found.may_be_rings]))
        return self._planner(changed)

    def refusal(self, refusals: Sequence[InputError]) -> Exception:
        """Why there is no cut that fits."""
        if not self.promising:
            return UnsupportedModelError(
                self.scope.graph.name,
                [Problem("io=rows", f"the first layers must work by rows; {self.reason}", "take another io")],
            )
        ram = self.options.ram
        if ram is None:
            return refusals[0]
        planners = [*self.promising, *self.with_rings]
        sizes = [leanest_size(self.rankings(planner), self.scope.model, planner) for planner in planners]
        least = min(sizes) + self.state
        if least <= ram:
            return refusals[0]
        return InputError(
            f"arena and state must fit {ram} bytes of RAM; computed by rows, the smallest arena found has "
            f"{min(sizes)}, and the state takes {self.state}; that none is smaller is not proved: allow "
            f"{least}, or make the model's rows smaller"
        )


def _shares_constants(found: Streamed, node: Node) -> bool:
    """All calls of a node, for many and for few rows, read the same constants."""
    layers = zip(found.planner.planned, found.calls, strict=True)
    calls = [call for each, call in layers if each.layer.whole is node]
    sets = {frozenset((c.record, c.array.tobytes()) for c in call.constants.values()) for call in calls}
    return len(sets) == 1


def _only(kernel: Kernel, layer: LayerContext, runs: int = 1) -> Ranking:
    """A layer that nothing else computes."""
    return Ranking(layer, [Candidate(kernel, kernel.cost(layer), None)], fixed=True, runs=runs)
