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
from microfold.kernels.band import lowered
from microfold.kernels.selection.cheapest import Ranking, candidates
from microfold.kernels.selection.decide import decide
from microfold.kernels.selection.flash_shares import FLASH_FOR_TIME
from microfold.kernels.selection.policy import Policy
from microfold.kernels.selection.ram_budget import leanest_size
from microfold.kernels.selection.row_weights import share_constants, widen_weights
from microfold.lowering.stream_cuts import Cuts
from microfold.lowering.streamed import MOVED_BYTE, Streamed, shares_constants, streamed, wider, with_rows
from microfold.ops.rows import ROWS
from microfold.options import Options
from microfold.plan.stream.planner import StreamPlanner
from microfold.plan.stream.region import Region, region_of
from microfold.plan.stream.row_node import RowNode
from microfold.support.memo import Remembered

# Cuts of which the rows are tried in rings, and carried, where the RAM is limited.
RING_LOOKS = 2
# Times as many cycles as without rings that are taken for a smaller arena where nothing is asked for.
FREE = 1.01
# Rows that a call may compute, the part of the time that they must save to be looked at closely, and
# how many times that is done: for the best cut, and for others.
WIDTHS = (2, 3, 4, 5, 6, 8)
WORTHWHILE = 0.01
WIDER_LOOKS, OTHER_WIDER_LOOKS = 24, 4


class Search:
    """Cuts with kernels, and what makes them better."""

    def __init__(self, cuts: Cuts, options: Options | None = None):
        self.cuts = cuts
        self.scope, self.options = cuts.scope, options or cuts.options
        self._by_address: dict[tuple[Node, int], float | None] = {}
        self._remembered = Remembered()

    def order(self, found: Streamed) -> tuple[float, float]:
        """What is better comes first: twice the arena for half of the time is an even exchange.

        Under a limit of RAM only time counts, and only the arena where flash is to be small.
        """
        cost, size = found.cost, found.memory.size
        if self.options.ram is not None:
            return cost, size
        return (size, cost) if self.options.optimize == "size" else (size * cost, size)

    @property
    def without_limit(self) -> Search:
        """The same cuts with any RAM."""
        return Search(self.cuts, replace(self.options, ram=None))

    @property
    def allowed(self) -> int | None:
        """Bytes that the options allow the arena; None: any."""
        return None if self.options.ram is None else self.options.ram - self.cuts.state

    def pays(self, before: Streamed, after: Streamed) -> bool:
        """Whether a plan takes no more time, and saves enough of it for what it adds to the flash."""
        saved, added = 1 - after.cost / before.cost, after.flash / before.flash - 1
        flash = added / FLASH_FOR_TIME if self.options.optimize == "balanced" else 0.0
        return saved >= max(flash, 0.0)

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
            policy = Policy(self.options.optimize, self.scope.model)
            layers = {form: band.reading_rows.layer for form, band in node.bands.items()}
            found = {form: next(iter(candidates(layer, policy)), None) for form, layer in layers.items()}
            costs = [each.cost * runs[f] for f, each in found.items() if each and each.cost is not None]
            self._by_address[key] = sum(costs) if len(costs) == len(found) else None
        return self._by_address[key]

    def with_free_rows_apart(self, found: Streamed) -> Streamed:
        """The cut with rings or carried rows where the arena is smaller so, and it takes about as long.

        Where the arena counts more than time, it may be longer.
        """
        longest = math.inf if self.options.optimize == "size" else found.cost * FREE
        best, too_slow = found, False

        def planners() -> Iterator[StreamPlanner | None]:
            yield from self.apart(found.planner)
            if too_slow and best is found:
                # Where rings cost too much time, the kernels that read windows may do.
                values = [value for region in found.planner.regions for value in region.may_be_carried]
                yield self.ringed(found.planner, (), values)

        for planner in planners():
            if (
                planner is not None
                and planner.least_need(self.cuts.first_kernels(planner)) < best.memory.size
            ):
                smaller = [t for t in self.looked_at([planner], []) if t.memory.size < best.memory.size]
                best = next((t for t in smaller if t.cost <= longest), best)
                too_slow |= any(t.cost > longest for t in smaller)
        return best

    def with_fewer_rows_apart(self, found: Streamed) -> Streamed:
        """The same without rings and carried rows in vain: they cost tables of addresses, and moves."""
        limit = self._limit(found)
        for values in self._alike((*found.rings, *found.carried)):
            fewer = self.ringed(found.planner, {*found.rings} - {*values}, {*found.carried} - {*values})
            if fewer is None or fewer.least_need(self.cuts.first_kernels(fewer)) > limit:
                continue
            tried = self.looked_at([fewer], [])
            if tried and tried[0].memory.size <= limit and tried[0].cost <= found.cost:
                found = tried[0]
        return found

    def _limit(self, found: Streamed) -> int:
        """Bytes that the arena may have: what is allowed, or else, as many as it has anyway."""
        return self.allowed if self.allowed is not None else found.memory.size

    def decided(self, planner: StreamPlanner, most: float = math.inf) -> Streamed:
        """Kernels and places for a cut.

        Args:
            most: cycles of the calls from which on it is not taken.

        Raises:
            InputError: nothing fits the RAM or the flash that the options allow.
        """
        rankings = self.cuts.rankings(planner)
        if self.allowed is not None and math.isinf(self._least_cost(planner, self.allowed)):
            raise InputError(f"computed by rows, no kernels fit {self.options.ram} bytes of RAM: allow more")
        chosen = decide(rankings, self.scope.model, self.options, planner, self.cuts.state, most)
        if self.options.optimize == "balanced" and self.options.flash is None:
            chosen = widen_weights(rankings, chosen, planner, self.allowed)
        if any(node.width > 1 for region in planner.regions for node in region.nodes):
            chosen = share_constants(rankings, chosen, planner, self.allowed)
        return streamed(planner, rankings, chosen, self.cuts.ranges)

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
            try:
                tried = self.decided(planner, found.cost)
            except InputError:
                continue
            if tried.cost >= found.cost or tried.memory.size > limit:
                continue
            if self.pays(found, tried) and shares_constants(tried, nodes):
                found = tried
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
        cases = [offer.case for candidate in ranking.candidates for offer in candidate.offers]
        costs = {case.kernel: case.cost for case in cases}
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
            return refusals[0]
        smallest = by_rows = self.leanest
        for search in tiles:
            smallest = min(smallest, search.leanest_below(smallest))
        least = smallest + self.cuts.state
        if least <= ram:
            return _nearest(refusals)
        how = "by rows" if smallest == by_rows else "by rows and in tiles of columns"
        found = (
            f"computed {how}, the smallest arena found has {smallest}, and the state takes "
            f"{self.cuts.state}; this is no bound: with a limit below, the search may find a smaller one"
        )
        return BudgetError.of_ram(ram, [found], int(least), "make the model's rows smaller")

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
            found = min(found, leanest_size(self.cuts.rankings(planner), self.scope.model, planner))
        return found


def _nearest(refusals: Sequence[InputError]) -> InputError:
    """Of all reasons the one that says what would do, and of these, the least."""
    sized = [each for each in refusals if isinstance(each, BudgetError)]
    flash = [each for each in sized if each.least("flash") is not None]
    return min(flash, key=lambda each: each.least("flash") or 0) if flash else [*sized, *refusals][0]


def _readers(region: Region, value: Value) -> list[RowNode]:
    """What reads several rows of a value at once."""
    return [node for node, index in region.readers[value] if node.reads_several(index)]
