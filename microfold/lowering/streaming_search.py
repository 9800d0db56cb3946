"""Search for streaming partitions: their kernels, and changes that make them faster or smaller."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby

from msgspec.structs import replace

from microfold.errors import BudgetError, InputError, Problem, UnsupportedModelError
from microfold.ir.node import Node, Value
from microfold.kernels.band import lowered
from microfold.kernels.selection.candidates import LayerCandidates, candidates
from microfold.kernels.selection.objective import Objective, SelectionFigures, objective_of
from microfold.lowering.choose import Chooser, limits_of
from microfold.lowering.streamed import (
    CYCLES_PER_COPIED_BYTE,
    Streamed,
    streamed,
    with_rows,
    with_rows_per_step,
)
from microfold.lowering.streaming_partitions import StreamingPartitions
from microfold.ops.rows import ROWS
from microfold.options import Options
from microfold.plan.stream.planner import StreamPlanner
from microfold.plan.stream.region import StreamRegion, region_of
from microfold.plan.stream.row_node import RowNode
from microfold.support.memo import Remembered

# Number of partitions for which ring buffers and copied line buffers are tried, if the RAM is limited.
RING_EVALUATIONS = 2
# Bytes of code and of the schedule that a streaming program has in addition to its calls.
ROWS_CODE = 1100
# Numbers of rows per call; the fraction of the time that they must save to be evaluated; and the maximum
# number of evaluations, for the best partition and for others.
ROWS_PER_STEP = (2, 3, 4, 5, 6, 8)
WORTHWHILE = 0.01
WIDER_LOOKS, OTHER_WIDER_LOOKS = 24, 4


class NoKernelsFitError(InputError):
    """Error: the kernels of a partition fit neither the RAM nor the flash that the options allow."""

    def __init__(self, planner: StreamPlanner, message: str):
        super().__init__(message)
        self.planner = planner


class StreamingSearch:
    """Search for streaming partitions with their kernels, and for improvements of them."""

    def __init__(
        self, cuts: StreamingPartitions, reference: SelectionFigures, options: Options | None = None
    ):
        self.cuts, self.reference = cuts, reference
        self.scope, self.options = cuts.scope, options or cuts.options
        self.objective = objective_of(self.options)
        self._by_address: dict[tuple[Node, int], float | None] = {}
        self._remembered = Remembered()

    def value(self, found: Streamed) -> tuple[float, ...]:
        """Return the cost of a plan by the objective; of equal plans, the smaller arena is better."""
        return (*self.objective.value(found.figures, self.reference), found.memory.size)

    @property
    def without_limit(self) -> StreamingSearch:
        """Search among the same partitions without a limit of RAM."""
        return StreamingSearch(self.cuts, self.reference, replace(self.options, ram=None))

    @property
    def allowed(self) -> int | None:
        """Bytes that the options allow for the arena; None if there is no limit."""
        return None if self.options.ram is None else self.options.ram - self.cuts.state

    def best_of(
        self,
        planners: Iterable[StreamPlanner],
        best: Streamed | None = None,
        refusals: list[InputError] | None = None,
    ) -> Streamed | None:
        """Return the best of some partitions and a known one, with its kernels; None if none fits.

        Partitions are evaluated in the order of their bounds, as long as the bound is better than the best
        plan.

        Args:
            refusals: list to which the reasons of partitions that do not fit are added.
        """
        shortlist: list[tuple[tuple[float, ...], StreamPlanner]] = []
        refused = refusals if refusals is not None else []
        for planner in planners:
            try:
                shortlist.append((self.bound(planner), planner))
            except InputError as refusal:
                refused.append(refusal)
        for bound, planner in sorted(shortlist, key=lambda each: each[0]):
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
        """Return a lower bound of the value of all kernels for a partition.

        Raises:
            InputError: no kernels fit the RAM or the flash that the options allow.
        """
        if self.allowed is not None and math.isinf(self._least_cost(planner, self.allowed)):
            raise self._refused(planner)
        found = self._chooser(planner).bound(self.objective, limits_of(self.options, self.cuts.state))
        if found is None:
            raise self._refused(planner)
        figures = replace(found, cycles=found.cycles + CYCLES_PER_COPIED_BYTE * planner.least_moved)
        return self.objective.value(figures, self.reference)

    @property
    def with_non_contiguous_buffers(self) -> Iterator[StreamPlanner]:
        """The best partitions with ring buffers wherever possible, and variants with copied line buffers."""
        for planner in self.cuts.shortlist[:RING_EVALUATIONS]:
            yield from self.with_separate_buffers(planner)

    def with_separate_buffers(self, planner: StreamPlanner) -> Iterator[StreamPlanner]:
        """Yield the partition with ring buffers, or copied line buffers if these are impossible or slower."""
        with_ring_buffers = self.with_ring_buffers(planner)
        if with_ring_buffers is not None:
            yield with_ring_buffers
        slow = [value for region in planner.regions for value in self._better_carried(region)]
        if slow:
            rings = (
                [v for region in with_ring_buffers.regions for v in region.rings if v not in slow]
                if with_ring_buffers
                else []
            )
            kept = self.with_ring_buffers(planner, rings, slow)
            assert kept is not None
            yield kept

    def with_ring_buffers(
        self,
        planner: StreamPlanner,
        chosen: Collection[Value] | None = None,
        carried: Collection[Value] = (),
    ) -> StreamPlanner | None:
        """Return the partition with ring buffers for some values; None if kernels can read none of them.

        Args:
            chosen: values in ring buffers; default: all that are possible.
            carried: values in copied line buffers.
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

    def _readable(self, region: StreamRegion) -> list[Value]:
        """Return the values that kernels can read from ring buffers."""
        return [
            value
            for value in region.may_be_rings
            if all(self._least_by_address(node) is not None for node in _readers(region, value))
        ]

    def _better_carried(self, region: StreamRegion) -> list[Value]:
        """Return the values for which a (contiguous) copied line buffer is faster than a ring buffer."""
        readable = self._readable(region)
        found: list[Value] = []
        for value in region.may_be_carried:
            slower = 0.0
            for node in _readers(region, value) if value in readable else ():
                slower += (self._least_by_address(node) or 0.0) - self.cuts.cost(node.addressed(False))
            # Rows that stay are copied twice in a copied line buffer, but only once into a ring buffer.
            moved = CYCLES_PER_COPIED_BYTE * value.type.nbytes
            if value not in readable or slower > moved:
                found.append(value)
        return found

    def _least_by_address(self, node: RowNode) -> float | None:
        """Return the least cost of all calls of a node with an indirection buffer; None without a kernel."""
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

    def with_free_non_contiguous_buffers(self, found: Streamed) -> Streamed:
        """Return the partition with ring buffers or copied line buffers if that is better."""
        best = found

        def planners() -> Iterator[StreamPlanner | None]:
            yield from self.with_separate_buffers(found.planner)
            if best is found:
                # If ring buffers cost too much time, kernels that read windows may be better.
                values = [value for region in found.planner.regions for value in region.may_be_carried]
                yield self.with_ring_buffers(found.planner, (), values)

        for planner in planners():
            if planner is not None:
                best = self.best_of([planner], best) or best
        return best

    def with_fewer_non_contiguous_buffers(self, found: Streamed) -> Streamed:
        """Return the partition without useless ring buffers and copied line buffers, which cost time."""
        for values in self._grouped_by_tile((*found.rings, *found.carried)):
            fewer = self.with_ring_buffers(
                found.planner, {*found.rings} - {*values}, {*found.carried} - {*values}
            )
            if fewer is not None:
                found = self.best_of([fewer], found) or found
        return found

    def _limit(self, found: Streamed) -> int:
        """Return the limit of the arena in bytes: the limit of the options, or the plan's present size."""
        return self.allowed if self.allowed is not None else found.memory.size

    def decided(
        self, planner: StreamPlanner, best: Streamed | None = None, *, thorough: bool = False
    ) -> Streamed | None:
        """Return kernels and plan of a partition; None if they are no better than the best plan so far.

        Args:
            thorough: see `Selector.best`.

        Raises:
            InputError: nothing fits the RAM or the flash that the options allow.
        """
        chooser, limits = self._chooser(planner), limits_of(self.options, self.cuts.state)
        known: SelectionFigures | None = None
        if best is not None:
            moved = CYCLES_PER_COPIED_BYTE * planner.least_moved
            known = replace(best.figures, cycles=best.figures.cycles - moved)
        found = chooser.best(self.objective, limits, known, thorough=thorough)
        if found is None and best is not None:
            return None
        if found is None:
            # The limit that an error suggests must work, even if no bounds led to the kernels for it.
            found = chooser.smallest
            if found.figures.arena > limits.arena or found.figures.flash > limits.flash:
                raise self._refused(planner)
        return streamed(planner, chooser.layers, found.candidates, found, self.cuts.ranges)

    def _refused(self, planner: StreamPlanner) -> NoKernelsFitError:
        """Return the error that no kernels of a partition fit; `refusal` finds the least limits of all."""
        options = self.options
        limits = [f"{options.ram} bytes of RAM"] if options.ram is not None else []
        limits += [f"{options.flash} of flash"] if options.flash is not None else []
        return NoKernelsFitError(
            planner, f"computed by rows, no kernels fit {' and '.join(limits)}: allow more"
        )

    def _chooser(self, planner: StreamPlanner) -> Chooser:
        """Return the chooser of the kernels of a partition."""

        def make() -> Chooser:
            rankings = self.cuts.rankings(planner)
            return Chooser(rankings, planner, reference=self.reference, fixed_flash=ROWS_CODE)

        return self._remembered((Chooser, planner), make)

    def with_more_rows(self, found: Streamed, looks: int = WIDER_LOOKS) -> Streamed:
        """Return the partition with calls that compute several rows, if that costs less.

        Each additional row also enlarges the windows before and after a layer by one row. Therefore this
        suits layers for which the arena has room: up to the limit of the options, or up to its present size.
        """
        limit = self._limit(found)
        for nodes, width in self._profitable_widths(found):
            planner = self._with_width(found.planner, nodes, width)
            if planner is None:
                continue
            most = found.cost - CYCLES_PER_COPIED_BYTE * planner.least_moved
            if self._least_cost(planner, limit) >= most:
                continue
            if looks == 0:
                break
            looks -= 1
            found = self.best_of([planner], found) or found
        return found

    def _least_cost(self, planner: StreamPlanner, limit: int) -> float:
        """Return the cost of the fastest kernels whose calls fit, for all layers; infinite if none fits."""
        return self._remembered((planner, limit), lambda: self._find_least_cost(planner, limit))

    def _find_least_cost(self, planner: StreamPlanner, limit: int) -> float:
        try:
            rankings = self.cuts.rankings(planner)
        except InputError:
            # Some layer has no kernel that reads several rows through an indirection buffer.
            return math.inf
        costs = [0.0] * len(rankings)
        # Calls with the most live bytes come first, because these are the least likely to fit.
        for index in sorted(range(len(rankings)), key=lambda each: -planner.alive(each)):
            costs[index] = self._least(planner, index, rankings[index], limit) * rankings[index].runs
            if math.isinf(costs[index]):
                return math.inf
        return sum(costs)

    def _least(self, planner: StreamPlanner, index: int, ranking: LayerCandidates, limit: int) -> float:
        """Return the cost of a layer's fastest kernel whose call fits; infinite if none fits."""
        offers = [offer for candidate in ranking.candidates for offer in candidate.offers]
        costs = {offer.kernel: min(offer.cost, offer.single_caller_cost) for offer in offers}
        costs = costs or {each.kernel: each.cost for each in ranking.candidates if each.cost is not None}
        for kernel in sorted(costs, key=lambda each: costs[each]):
            if planner.need(index, kernel, lowered(kernel, ranking.layer)) <= limit:
                return costs[kernel]
        return math.inf

    def _grouped_by_tile(self, values: Sequence[Value]) -> list[list[Value]]:
        """Return values in groups: the parts of one value in different tiles are together."""
        found: dict[Value, list[Value]] = {}
        for value in values:
            found.setdefault(self.cuts.whole(value), []).append(value)
        return [*found.values()]

    def _profitable_widths(self, found: Streamed) -> list[tuple[list[Node], int]]:
        """Return layers and rows per call by descending saving; for the same layers, fewer rows first."""
        saved: list[tuple[float, list[Node], int]] = []
        for rows in self._together(found):
            least = sum(self.cuts.cost(node) for node in rows)
            for width in ROWS_PER_STEP:
                wide = [with_rows_per_step(node, width) for node in rows]
                if any(width >= len(node.parts) for node in rows) or any(isinstance(w, str) for w in wide):
                    break
                cost = sum(self.cuts.cost(node) for node in wide if not isinstance(node, str))
                if least - cost > WORTHWHILE * found.cost:
                    saved.append((least - cost, [node.node for node in rows], width))
                    least = cost
        return [(nodes, width) for _, nodes, width in sorted(saved, key=lambda each: -each[0])]

    def _together(self, found: Streamed) -> list[list[RowNode]]:
        """Return all layers separately, and consecutive layers of equal height together.

        If one layer computes several rows at once, the next one reads them at once, so that no rows wait.
        """
        rows = {n.output: n for region in found.planner.regions for n in region.nodes if not n.accumulates}
        alone = [[rows[value] for value in outputs] for outputs in self._grouped_by_tile([*rows])]
        heights = groupby(alone, key=lambda nodes: nodes[0].output.type.shape[ROWS])
        alike = [[node for nodes in group for node in nodes] for _, group in heights]
        return alone + [nodes for nodes in alike if nodes not in alone]

    def _with_width(self, planner: StreamPlanner, wide: Sequence[Node], width: int) -> StreamPlanner | None:
        """Return the partition with calls for several rows for some nodes; None if that is impossible."""
        changed: list[StreamRegion] = []
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
            # Windows replace ring buffers if calls for several rows cannot read ring buffers.
            changed.append(found.with_rings(region.rings, region.carried))
        return self.cuts.planner(changed)

    def refusal(self, refusals: Sequence[InputError], tiles: Sequence[StreamingSearch] = ()) -> Exception:
        """Return the error that no partition fits, including tiles of columns."""
        if not self.cuts.shortlist:
            return UnsupportedModelError(
                self.scope.graph.name,
                [
                    Problem(
                        "io=rows",
                        f"the first layers must work by rows; {self.cuts.reason}",
                        "choose another io",
                    )
                ],
            )
        ram = self.options.ram
        if ram is None:
            return self._least_flash(refusals)
        smallest = by_rows = self.with_least_memory
        for search in tiles:
            smallest = min(smallest, search.least_memory_below(smallest))
        least = smallest + self.cuts.state
        if least <= ram:
            return self._least_flash(refusals)
        how = "by rows" if smallest == by_rows else "by rows and in tiles of columns"
        found = (
            f"computed {how}, the smallest arena found needs {smallest}, and the state needs "
            f"{self.cuts.state}; this is no lower bound: with a lower limit, the search may find less"
        )
        return BudgetError.of_ram(ram, [found], int(least), "make the model's rows smaller")

    def _least_flash(self, refusals: Sequence[InputError]) -> InputError:
        """Return the error of the partition that needs least flash within the RAM, by ascending bounds."""
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
    def with_least_memory(self) -> float:
        """Smallest arena of these partitions with any kernels, in bytes; infinite if there is none."""
        return self.least_memory_below(math.inf)

    def least_memory_below(self, most: float) -> float:
        """Return the size of the smallest arena, or `most` if none is smaller."""
        planners = [*self.cuts.shortlist, *self.with_non_contiguous_buffers]
        needs = [planner.least_need(self.cuts.first_kernels(planner)) for planner in planners]
        found = most
        for need, planner in sorted(zip(needs, planners, strict=True), key=lambda each: each[0]):
            if need >= found:
                break
            found = min(found, self._chooser(planner).smallest.figures.arena)
        return found


def _readers(region: StreamRegion, value: Value) -> list[RowNode]:
    """Return the nodes that read several rows of a value at once."""
    return [node for node, index in region.readers[value] if node.reads_several(index)]
