"""Models whose first layers are computed row by row: how many these are, and with which kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from microfold.codegen.names import Namer
from microfold.errors import InputError, Problem, UnsupportedModelError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.views import Views, needs_no_code
from microfold.kernels.band import unsupported_rows
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
from microfold.lowering.schedule import Places, claim_name
from microfold.lowering.scope import Scope
from microfold.options import Options
from microfold.plan.overlap import align
from microfold.plan.stream.planner import StreamMemory, StreamPlanner
from microfold.plan.stream.region import Form, Region, RowNode, by_rows, region_of, sums_by_rows
from microfold.program import Buffer, Layer

# Cuts that are looked at closely: those that promise the smallest arenas.
CLOSE_LOOKS = 4
# Rows that a call may compute, the part of the instructions that they must save to be looked at closely, and
# how many times that is done.
WIDTHS = (2, 3, 4, 5, 6, 8)
WORTHWHILE = 0.01
WIDER_LOOKS = 24


@dataclass(frozen=True, eq=False)
class Streamed:
    """A model of which the first part is computed row by row.

    Attributes:
        rankings: of all layers, those of bands first.
        chosen: the kernel of each.
        calls: of the kernels.
    """

    planner: StreamPlanner
    rankings: Sequence[Ranking]
    chosen: Sequence[Candidate]
    calls: Sequence[KernelCall]
    memory: StreamMemory

    @property
    def cost(self) -> float:
        """Estimated instructions of the layers' calls."""
        return sum((c.cost or 0.0) * r.runs for c, r in zip(self.chosen, self.rankings, strict=True))


def streamed(scope: Scope, options: Options) -> Streamed:
    """The cut with the smallest arena; with a limit of RAM, the fastest one that fits.

    Raises:
        UnsupportedModelError: not even the first layer works by rows.
        InputError: nothing fits the RAM or the flash that the options allow.
    """
    cuts = _Cuts(scope, options)
    looked_at: list[Streamed] = []
    refusals: list[InputError] = []
    for planner in cuts.promising:
        try:
            looked_at.append(cuts.decided(planner))
        except InputError as refusal:
            refusals.append(refusal)
    if not looked_at:
        raise cuts.refusal(refusals)

    def order(found: Streamed) -> tuple[float, float]:
        return (found.cost, found.memory.size) if options.ram is not None else (found.memory.size, found.cost)

    best = cuts.widened(min(looked_at, key=order))
    best.memory.check([candidate.kernel for candidate in best.chosen])
    return best


class _Cuts:
    """Where the part that is computed row by row may end."""

    def __init__(self, scope: Scope, options: Options):
        graph = scope.graph
        self.scope = scope
        self.options = options
        self.state = sum(align(state.value.type.nbytes) for state in graph.state)
        self.reason = ""
        # Results that the caller wants in buffers of its own: no rows are computed into these.
        views = Views(graph)
        self._outputs = {views[v].root for v in graph.outputs} if options.io == "caller" else set[Value]()
        self._layers = {ranking.layer.node: ranking for ranking in scope.rankings}
        self._ranked: dict[tuple[RowNode, Form], Ranking] = {}
        if len(graph.inputs) != 1:
            names = ", ".join(f"%{value.name}" for value in graph.inputs)
            self.reason = f"rows are those of one input; this model has {len(graph.inputs)}: {names}"
        elif scope.inner:
            self.reason = "models with loops or conditions are computed whole"

    @cached_property
    def promising(self) -> list[StreamPlanner]:
        """Cuts with the smallest arenas, as far as sizes without scratch tell."""
        found: list[tuple[int, StreamPlanner]] = []
        for planner in self._planners():
            try:
                kernels = self._first_kernels(planner)
            except InputError as refusal:
                self.reason = self.reason or str(refusal)
            else:
                found.append((planner.least_need(kernels), planner))
        return [planner for _, planner in sorted(found, key=lambda each: each[0])[:CLOSE_LOOKS]]

    def _planners(self) -> Iterator[StreamPlanner]:
        """For every cut that can be."""
        graph = self.scope.graph
        rows: list[RowNode] = []
        for node in graph.nodes if not self.reason else ():
            if (
                rows
                and node in self._layers
                and (parts := means_of_sums(self._layers[node].layer)) is not None
            ):
                yield from self._with_sums(node, parts, rows)
            found = self._by_rows(node)
            if isinstance(found, str):
                self.reason = self.reason or f"{node.op.name} %{node.outputs[0].name}: {found}"
                break
            rows.append(found)
            region = region_of(graph, rows)
            if isinstance(region, str):
                self.reason = self.reason or region
                continue
            if not region.inputs:
                self.reason = self.reason or "nothing of the input is read"
                continue
            if self._outputs.isdisjoint(region.fronts):
                yield self._planner(region)

    def _planner(self, region: Region) -> StreamPlanner:
        layers = [self._layers[node].layer for node in region.rest if not needs_no_code(node)]
        return StreamPlanner(region, layers, self._outputs, self.options.align)

    def _with_sums(
        self, pool: Node, parts: tuple[Node, Node], rows: Sequence[RowNode]
    ) -> Iterator[StreamPlanner]:
        """The cut behind a pool over the whole image, of which the region has the sums."""
        graph = with_means_of_sums(self.scope.graph, pool, parts)
        sums, means = (replace(self._layers[pool].layer, node=part) for part in parts)
        region = region_of(graph, [*rows, sums_by_rows(sums)])
        if not isinstance(region, str) and region.inputs:
            self._layers[parts[1]] = _only(MeanOfSumsInt8(), means)
            yield self._planner(region)

    def _by_rows(self, node: Node) -> RowNode | str:
        ranking = self._layers.get(node)
        if ranking is None:
            return "it computes nothing: its result lies where its operand is"
        if ranking.fixed:
            return "external code computes it, and whole"
        return by_rows(ranking.layer)

    def rankings(self, planner: StreamPlanner) -> list[Ranking]:
        """All layers with the kernels considered for them."""
        bands = [self._ranking(band.node, band.form, len(band.events)) for band in planner.bands]
        return [*bands, *(self._layers[layer.node] for layer in planner.rest)]

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
        for kernel, band in zip(kernels, planner.bands, strict=False):
            reason = unsupported_rows(kernel, band.band)
            if reason is not None:
                raise InputError(f"{kernel.name} cannot compute %{band.node.output.name} by rows: {reason}")
        calls = [kernel.lower(r.layer) for kernel, r in zip(kernels, rankings, strict=True)]
        return Streamed(planner, rankings, chosen, calls, planner.plan(kernels, calls))

    def _with_wide_weights(
        self, planner: StreamPlanner, rankings: Sequence[Ranking], chosen: Sequence[Candidate]
    ) -> list[Candidate]:
        """The choices with wider weights where these pay, in an arena that is not larger than it may be."""
        limit = self.options.ram
        if limit is None:
            kernels = [candidate.kernel for candidate in chosen]
            calls = [kernel.lower(r.layer) for kernel, r in zip(kernels, rankings, strict=True)]
            return widen_weights(rankings, chosen, planner, planner.plan(kernels, calls).size)
        return widen_weights(rankings, chosen, planner, limit - self.state)

    def widened(self, found: Streamed) -> Streamed:
        """The same cut with calls that compute several rows, where that costs less.

        Every row more is one more in the windows on both sides of a layer. So this is for layers beside which
        the arena has room: what the options allow, or else, as much as it has anyway.
        """
        allowed = self.options.ram
        limit = allowed - self.state if allowed is not None else found.memory.size
        for node, width in self._worthwhile(found):
            planner = self._with_width(found.planner.region, node, width)
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
        for node in found.planner.region.nodes:
            if node.accumulates:
                continue
            least = self._cost(node)
            for width in WIDTHS:
                wide = by_rows(node.layer, width)
                if width >= len(node.parts) or isinstance(wide, str):
                    break
                cost = self._cost(wide)
                if least - cost > WORTHWHILE * found.cost:
                    saved.append((least - cost, node.node, width))
                    least = cost
        return [(node, width) for _, node, width in sorted(saved, key=lambda each: -each[0])][:WIDER_LOOKS]

    def _cost(self, node: RowNode) -> float:
        """The least estimate of all calls of a node."""
        runs = Counter(node.forms)
        return sum((self._ranking(node, f, n).candidates[0].cost or 0.0) * n for f, n in runs.items())

    def _with_width(self, region: Region, node: Node, width: int) -> StreamPlanner | None:
        """A cut with other calls for a node."""
        nodes = [by_rows(n.layer, width) if n.node is node else n for n in region.nodes]
        changed = region_of(region.graph, [n for n in nodes if not isinstance(n, str)])
        return None if isinstance(changed, str) else self._planner(changed)

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
        sizes = [
            leanest_size(self.rankings(planner), self.scope.model, planner) for planner in self.promising
        ]
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
    bands = zip(found.planner.bands, found.calls, strict=False)
    calls = [call for band, call in bands if band.node.node is node]
    sets = {frozenset((c.record, c.array.tobytes()) for c in call.constants.values()) for call in calls}
    return len(sets) == 1


def _only(kernel: Kernel, layer: LayerContext, runs: int = 1) -> Ranking:
    """A layer that nothing else computes."""
    return Ranking(layer, [Candidate(kernel, kernel.cost(layer), None)], fixed=True, runs=runs)


def stream_layers(found: Streamed, calls: Sequence[KernelCall], places: Places) -> tuple[Layer, ...]:
    """The layers of the program, those of bands first.

    Args:
        calls: of all layers.
        places: of what is not in the arena.
    """
    planner, memory = found.planner, found.memory
    namer = Namer()
    layers: list[Layer] = []
    locate = _Locator(found, places)
    for index, (ranking, candidate, call) in enumerate(zip(found.rankings, found.chosen, calls, strict=True)):
        band = planner.bands[index] if index < len(planner.bands) else None
        layer, kernel = ranking.layer, candidate.kernel
        # What people read is of the whole layer.
        whole = band.node.layer if band is not None else layer
        node = whole.node
        scratch = memory.scratch.get(index)
        timing = layer.target.timing
        layers.append(
            Layer(
                index=index,
                name=claim_name(namer, whole, None if band is not None else kernel),
                node=node,
                kernel=kernel,
                call=call,
                work=(node,) if band is not None else kernel.work(layer),
                macs=sum(each.macs() for each in kernel.work(layer)) * ranking.runs,
                estimated_instructions=_total(candidate.cost, ranking.runs),
                estimated_cycles=_total(kernel.cycles(layer), ranking.runs) if timing is not None else None,
                inputs=tuple(
                    locate(value) for i in kernel.data_inputs(layer) if (value := node.inputs[i]) is not None
                ),
                outputs=tuple(locate(value) for value in node.outputs),
                scratch=memory.arena.offsets[scratch] if scratch is not None else None,
                candidates=tuple(ranking.candidates),
                rows=_rows(found, index) if band is not None else None,
            )
        )
    return tuple(layers)


def stream_buffers(found: Streamed, values: Sequence[Value], places: Places) -> tuple[Buffer, ...]:
    """Where values lie behind the stream."""
    locate = _Locator(found, places)
    return tuple(locate(value) for value in values)


class _Locator:
    """Finds the buffer of every value: of streamed ones, the window."""

    def __init__(self, found: Streamed, places: Places):
        graph: Graph = found.planner.graph
        self.found = found
        self.special = dict.fromkeys(graph.constants, ("constant", 0)) | dict(places)
        self.windows = found.memory.windows
        self.fronts = found.memory.fronts

    def __call__(self, value: Value) -> Buffer:
        planner, memory = self.found.planner, self.found.memory
        place = planner.place(value)
        if place.root in self.special:
            region, offset = self.special[place.root]
            return Buffer(value, region, offset + place.offset if region == "state" else offset)
        if place.root in self.fronts:
            return Buffer(value, "arena", self.fronts[place.root] + place.offset)
        if place.root in self.windows:
            return Buffer(value, "arena", self.windows[place.root])
        block = planner.block_of(place.root)
        assert block is not None
        return Buffer(value, "arena", memory.arena.offsets[block] + place.offset)


def _rows(found: Streamed, index: int) -> tuple[int, ...]:
    """The rows that the calls of a band's layer write, in order."""
    band = found.planner.bands[index]
    events = found.planner.windows.events[band.node]
    own = set(band.events)
    parts = (band.node.written(part) for part, event in enumerate(events) if event in own)
    return tuple(row for part in parts for row in range(*part))


def _total(each: float | None, runs: int) -> int | None:
    return round(each * runs) if each is not None else None
