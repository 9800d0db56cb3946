"""Cuts of models that are computed row by row: their kernels, and what makes them faster or smaller."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby

from microfold.errors import BudgetError, InputError, Problem, UnsupportedModelError
from microfold.ir.node import Node, Value
from microfold.kernels.band import lowered, unsupported_rows
from microfold.kernels.kernel import Kernel
from microfold.kernels.selection.cheapest import Ranking, candidates
from microfold.kernels.selection.objective import Figures, Objective, objective_of
from microfold.lowering.choose import Chooser, limits_of
from microfold.lowering.stream_cuts import Cuts
from microfold.lowering.streamed import MOVED_BYTE, Streamed, streamed, wider, with_rows
from microfold.ops.rows import ROWS
from microfold.options import Options
from microfold.plan.stream.planner import StreamPlanner
from microfold.plan.stream.region import Region, region_of
from microfold.plan.stream.row_node import RowNode
from microfold.support.memo import Remembered

# Cuts of which the rows are tried in rings, and carried, where the RAM is limited.
RING_LOOKS = 2
# Bytes of code and of the description of what happens that programs by rows have besides their calls.
ROWS_CODE = 1100
# Rows that a call may compute, the part of the time that they must save to be looked at closely, and
# how many times that is done: for the best cut, and for others.
WIDTHS = (2, 3, 4, 5, 6, 8)
WORTHWHILE = 0.01
WIDER_LOOKS, OTHER_WIDER_LOOKS = 24, 4


class NoKernelsFitError(InputError):
    """The kernels of a cut fit neither the RAM nor the flash that the options allow."""

    def __init__(self, planner: StreamPlanner, message: str):
        super().__init__(message)
        self.planner = planner


class Search:
    """Cuts with kernels, and what makes them better."""

    def __init__(self, cuts: Cuts, reference: Figures, options: Options | None = None):
        self.cuts, self.reference = cuts, reference
        self.scope, self.options = cuts.scope, options or cuts.options
        self.objective = objective_of(self.options)
        self._by_address: dict[tuple[Node, int], float | None] = {}
        self._remembered = Remembered()

    def value(self, found: Streamed) -> tuple[float, ...]:
        """Return what a plan costs by the objective; of equal ones, the smaller arena is better."""
        return (*self.objective.value(found.figures, self.reference), found.memory.size)

    @property
    def without_limit(self) -> Search:
        """The same cuts with any RAM."""
        return Search(self.cuts, self.reference, replace(self.options, ram=None))

    @property
    def allowed(self) -> int | None:
        """Bytes that the options allow the arena; None: any."""
        return None if self.options.ram is None else self.options.ram - self.cuts.state

    def best_of(
        self,
        planners: Iterable[StreamPlanner],
        best: Streamed | None = None,
        refusals: list[InputError] | None = None,
    ) -> Streamed | None:
        """Return the best cut with its kernels, of some and one that is known; None: none fits.

        Those whose bounds are best are looked at first, and only those whose bounds are better than the best.

        Args:
            refusals: gets the reasons of those that do not fit.
        """
        promising: list[tuple[tuple[float, ...], StreamPlanner]] = []
        refused = refusals if refusals is not None else []
        for planner in planners:
            try:
                promising.append((self.bound(planner), planner))
            except InputError as refusal:
                refused.append(refusal)
        for bound, planner in sorted(promising, key=lambda each: each[0]):
            if best is not None and bound >= self.value(best)[: len(bound)]:
                break
            try:
                found = self.decided(planner, best)
                if best is None or (found is not None and self.value(found) < self.value(best)):
                    best = found
            except InputError as refusal:
                refused.append(refusal)
        return best

    def bound(self, planner: StreamPlanner) -> tuple[float, ...]:
        """Return a value than which no kernels for a cut have a better one.

        Raises:
            InputError: none fit the RAM or the flash that the options allow.
        """
        if self.allowed is not None and math.isinf(self._least_cost(planner, self.allowed)):
            raise self._refused(planner)
        found = self._chooser(planner).bound(self.objective, limits_of(self.options, self.cuts.state))
        if found is None:
            raise self._refused(planner)
        figures = replace(found, cycles=found.cycles + MOVED_BYTE * planner.least_moved)
        return self.objective.value(figures, self.reference)

    @property
    def with_rows_apart(self) -> Iterator[StreamPlanner]:
        """The best cuts with rings for all values that may be rings; others with rows carried."""
        for planner in self.cuts.promising[:RING_LOOKS]:
            yield from self.apart(planner)

    def apart(self, planner: StreamPlanner) -> Iterator[StreamPlanner]:
        """The same cut with rings, and with rows carried where rings are not possible, or slower."""
        ringed = self.ringed(planner)
        if ringed is not None:
            yield ringed
        slow = [value for region in planner.regions for value in self._better_carried(region)]
        if slow:
            rings = [v for region in ringed.regions for v in region.rings if v not in slow] if ringed else []
            kept = self.ringed(planner, rings, slow)
            assert kept is not None
            yield kept

    def ringed(
        self,
        planner: StreamPlanner,
        chosen: Collection[Value] | None = None,
        carried: Collection[Value] = (),
    ) -> StreamPlanner | None:
        """The same cut with rings for some values; None if there are none that kernels can read.

        Args:
            chosen: default: all that may be.
            carried: values of which rows are carried.
        """
        regions = [
            region.with_rings(
                [v for v in self._readable(region) if chosen is None or v in chosen],
                [v for v in region.may_be_carried if v in carried],
            )
            for region in planner.regions
        ]
        none = chosen is None and not any(region.rings for region in regions)
        return None if none else self.cuts.planner(regions)

    def _readable(self, region: Region) -> list[Value]:
        """Values that kernels read in rings."""
        return [
            value
            for value in region.may_be_rings
            if all(self._least_by_address(node) is not None for node in _readers(region, value))
        ]

    def _better_carried(self, region: Region) -> list[Value]:
        """Values whose rows are carried and read in one piece in less time than in rings."""
        readable = self._readable(region)
        found: list[Value] = []
        for value in region.may_be_carried:
            slower = 0.0
            for node in _readers(region, value) if value in readable else ():
                slower += (self._least_by_address(node) or 0.0) - self.cuts.cost(node.addressed(False))
            # What stays is carried twice for each row; it moves into a ring once.
            moved = MOVED_BYTE * value.type.nbytes
            if value not in readable or slower > moved:
                found.append(value)
        return found

    def _least_by_address(self, node: RowNode) -> float | None:
        """The least estimate of all calls of a node with addresses of its rows; None: no kernel."""
        key = node.node, node.width
        if key not in self._by_address:
            runs = Counter(node.forms)
            layers = {form: band.reading_rows.layer for form, band in node.bands.items()}
            found = {
                form: next(iter(candidates(layer, self.scope.guidance)), None)
                for form, layer in layers.items()
            }
            costs = [each.cost * runs[f] for f, each in found.items() if each and each.cost is not None]
            self._by_address[key] = sum(costs) if len(costs) == len(found) else None
        return self._by_address[key]

    def with_free_rows_apart(self, found: Streamed) -> Streamed:
        """The cut with rings or carried rows where that is better."""
        best = found

        def planners() -> Iterator[StreamPlanner | None]:
            yield from self.apart(found.planner)
            if best is found:
                # Where rings cost too much time, the kernels that read windows may do.
                values = [value for region in found.planner.regions for value in region.may_be_carried]
                yield self.ringed(found.planner, (), values)

        for planner in planners():
            if (
                planner is not None
                and planner.least_need(self.cuts.first_kernels(planner)) < best.memory.size
            ):
                best = self.best_of([planner], best) or best
        return best

    def with_fewer_rows_apart(self, found: Streamed) -> Streamed:
        """The same without rings and carried rows in vain: they cost tables of addresses, and moves."""
        limit = self._limit(found)
        for values in self._alike((*found.rings, *found.carried)):
            fewer = self.ringed(found.planner, {*found.rings} - {*values}, {*found.carried} - {*values})
            if fewer is None or fewer.least_need(self.cuts.first_kernels(fewer)) > limit:
                continue
            found = self.best_of([fewer], found) or found
        return found

    def _limit(self, found: Streamed) -> int:
        """Bytes that the arena may have: what is allowed, or else, as many as it has anyway."""
        return self.allowed if self.allowed is not None else found.memory.size

    def decided(
        self, planner: StreamPlanner, best: Streamed | None = None, *, thorough: bool = False
    ) -> Streamed | None:
        """Return kernels and places for a cut; None: they are no better than the best plan so far.

        Args:
            thorough: see `Selector.best`.

        Raises:
            InputError: nothing fits the RAM or the flash that the options allow.
        """
        chooser, limits = self._chooser(planner), limits_of(self.options, self.cuts.state)
        known: Figures | None = None
        if best is not None:
            moved = MOVED_BYTE * planner.least_moved
            known = replace(best.figures, cycles=best.figures.cycles - moved)
        found = chooser.best(self.objective, limits, known, thorough=thorough)
        if found is None and best is not None:
            return None
        if found is None:
            raise self._refused(planner)
        return streamed(planner, chooser.layers, found.candidates, found, self.cuts.ranges)

    def _refused(self, planner: StreamPlanner) -> NoKernelsFitError:
        """Return that no kernels for a cut fit; `refusal` finds the least RAM and flash of all cuts."""
        options = self.options
        limits = [f"{options.ram} bytes of RAM"] if options.ram is not None else []
        limits += [f"{options.flash} of flash"] if options.flash is not None else []
        return NoKernelsFitError(
            planner, f"computed by rows, no kernels fit {' and '.join(limits)}: allow more"
        )

    def _chooser(self, planner: StreamPlanner) -> Chooser:
        """Return the chooser of the kernels of a cut."""
        return self._remembered((Chooser, planner), lambda: self._make_chooser(planner))

    def _make_chooser(self, planner: StreamPlanner) -> Chooser:
        def may_compute(index: int, kernel: Kernel) -> bool:
            band = planner.planned[index].band
            return band is None or unsupported_rows(kernel, band.band) is None

        return Chooser(
            self.cuts.rankings(planner),
            planner,
            reference=self.reference,
            fixed_flash=ROWS_CODE,
            may_compute=may_compute,
        )

    def widened(self, found: Streamed, looks: int = WIDER_LOOKS) -> Streamed:
        """The same cut with calls that compute several rows, where that costs less.

        Every row more is one more in the windows on both sides of a layer. So this is for layers beside which
        the arena has room: what the options allow, or else, as much as it has anyway.
        """
        limit = self._limit(found)
        for nodes, width in self._worthwhile(found):
            planner = self._with_width(found.planner, nodes, width)
            if planner is None:
                continue
            most = found.cost - MOVED_BYTE * planner.least_moved
            if self._least_cost(planner, limit) >= most:
                continue
            if looks == 0:
                break
            looks -= 1
            found = self.best_of([planner], found) or found
        return found

    def _least_cost(self, planner: StreamPlanner, limit: int) -> float:
        """Of the layers' calls, each by the fastest kernel whose call fits; infinite if there is none."""
        return self._remembered((planner, limit), lambda: self._find_least_cost(planner, limit))

    def _find_least_cost(self, planner: StreamPlanner, limit: int) -> float:
        try:
            rankings = self.cuts.rankings(planner)
        except InputError:
            # Not all kernels read several rows by their addresses.
            return math.inf
        costs = [0.0] * len(rankings)
        # The calls with most around them first: mostly these are what does not fit.
        for index in sorted(range(len(rankings)), key=lambda each: -planner.alive(each)):
            costs[index] = self._least(planner, index, rankings[index], limit) * rankings[index].runs
            if math.isinf(costs[index]):
                return math.inf
        return sum(costs)

    def _least(self, planner: StreamPlanner, index: int, ranking: Ranking, limit: int) -> float:
        """The same of a layer, whatever the kernel gives up for it."""
        offers = [offer for candidate in ranking.candidates for offer in candidate.offers]
        costs = {offer.kernel: min(offer.cost, offer.cost_alone) for offer in offers}
        costs = costs or {each.kernel: each.cost for each in ranking.candidates if each.cost is not None}
        for kernel in sorted(costs, key=lambda each: costs[each]):
            if planner.need(index, kernel, lowered(kernel, ranking.layer)) <= limit:
                return costs[kernel]
        return math.inf

    def _alike(self, values: Sequence[Value]) -> list[list[Value]]:
        """The same, those together that tiles have in the place of one."""
        found: dict[Value, list[Value]] = {}
        for value in values:
            found.setdefault(self.cuts.whole(value), []).append(value)
        return [*found.values()]

    def _worthwhile(self, found: Streamed) -> list[tuple[list[Node], int]]:
        """Layers and numbers of rows a call, those that save most first; of some layers, few rows first."""
        saved: list[tuple[float, list[Node], int]] = []
        for rows in self._together(found):
            least = sum(self.cuts.cost(node) for node in rows)
            for width in WIDTHS:
                wide = [wider(node, width) for node in rows]
                if any(width >= len(node.parts) for node in rows) or any(isinstance(w, str) for w in wide):
                    break
                cost = sum(self.cuts.cost(node) for node in wide if not isinstance(node, str))
                if least - cost > WORTHWHILE * found.cost:
                    saved.append((least - cost, [node.node for node in rows], width))
                    least = cost
        return [(nodes, width) for _, nodes, width in sorted(saved, key=lambda each: -each[0])]

    def _together(self, found: Streamed) -> list[list[RowNode]]:
        """Layers one by one, and all of an equal height that follow each other.

        What one computes of several rows at once, the next one then reads at once: no rows wait.
        """
        rows = {n.output: n for region in found.planner.regions for n in region.nodes if not n.accumulates}
        alone = [[rows[value] for value in outputs] for outputs in self._alike([*rows])]
        heights = groupby(alone, key=lambda nodes: nodes[0].output.type.shape[ROWS])
        alike = [[node for nodes in group for node in nodes] for _, group in heights]
        return alone + [nodes for nodes in alike if nodes not in alone]

    def _with_width(self, planner: StreamPlanner, wide: Sequence[Node], width: int) -> StreamPlanner | None:
        """A cut with other calls for some nodes."""
        changed: list[Region] = []
        for region in planner.regions:
            rows: list[RowNode] = []
            made: dict[Value, RowNode] = {}
            for each in region.nodes:
                rowed = with_rows(each, width, made) if each.node in wide else each
                if isinstance(rowed, str):
                    return None
                if rowed is not each:
                    made[each.output] = rowed
                rows.append(rowed)
            found = region_of(region.graph, rows, region.start, self.cuts.pushed)
            if isinstance(found, str):
                return None
            # Where calls for more rows read no rings, their windows are moved again.
            changed.append(found.with_rings(region.rings, region.carried))
        return self.cuts.planner(changed)

    def refusal(self, refusals: Sequence[InputError], tiles: Sequence[Search] = ()) -> Exception:
        """Why there is no cut that fits, none in tiles of columns either."""
        if not self.cuts.promising:
            return UnsupportedModelError(
                self.scope.graph.name,
                [
                    Problem(
                        "io=rows",
                        f"the first layers must work by rows; {self.cuts.reason}",
                        "take another io",
                    )
                ],
            )
        ram = self.options.ram
        if ram is None:
            return self._least_flash(refusals)
        smallest = by_rows = self.leanest
        for search in tiles:
            smallest = min(smallest, search.leanest_below(smallest))
        least = smallest + self.cuts.state
        if least <= ram:
            return self._least_flash(refusals)
        how = "by rows" if smallest == by_rows else "by rows and in tiles of columns"
        found = (
            f"computed {how}, the smallest arena found has {smallest}, and the state takes "
            f"{self.cuts.state}; this is no bound: with a limit below, the search may find a smaller one"
        )
        return BudgetError.of_ram(ram, [found], int(least), "make the model's rows smaller")

    def _least_flash(self, refusals: Sequence[InputError]) -> InputError:
        """Return the refusal of the cut that needs least flash within the RAM, the best bounds first."""
        if self.options.flash is None:
            return refusals[0]
        limits = replace(limits_of(self.options, self.cuts.state), flash=math.inf)
        choosers = [self._chooser(each.planner) for each in refusals if isinstance(each, NoKernelsFitError)]
        bounds = ((chooser.bound(Objective(flash=1.0), limits), chooser) for chooser in choosers)
        fitting = [(bound.flash, chooser) for bound, chooser in bounds if bound is not None]
        nearest, least = refusals[0], math.inf
        for bound, chooser in sorted(fitting, key=lambda each: each[0]):
            if bound >= least:
                break
            refusal = chooser.refused_flash(self.options, self.cuts.state)
            if refusal is not None and (refusal.least("flash") or 0) < least:
                nearest, least = refusal, refusal.least("flash") or 0
        return nearest

    @cached_property
    def leanest(self) -> float:
        """Bytes of the smallest arena of these cuts, whatever the kernels; infinite if there are none."""
        return self.leanest_below(math.inf)

    def leanest_below(self, most: float) -> float:
        """The same if it has less than so many bytes; others are not looked for to the end."""
        planners = [*self.cuts.promising, *self.with_rows_apart]
        needs = [planner.least_need(self.cuts.first_kernels(planner)) for planner in planners]
        found = most
        for need, planner in sorted(zip(needs, planners, strict=True), key=lambda each: each[0]):
            if need >= found:
                break
            smallest = self._chooser(planner).best(Objective(arena=1.0))
            assert smallest is not None  # without limits, there is always a choice
            found = min(found, smallest.figures.arena)
        return found


def _readers(region: Region, value: Value) -> list[RowNode]:
    """What reads several rows of a value at once."""
    return [node for node, index in region.readers[value] if node.reads_several(index)]
