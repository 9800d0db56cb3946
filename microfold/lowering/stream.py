"""Models with streamed layers: choice of the streaming partition, of its kernels, and of tiles of columns."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from microfold.errors import InputError
from microfold.lowering.stream_tiles import StreamTiling, Tilings
from microfold.lowering.streamed import Streamed
from microfold.lowering.streaming_search import OTHER_WIDER_LOOKS, StreamingSearch
from microfold.plan.stream.check_memory import check_memory
from microfold.plan.stream.planner import StreamPlanner
from microfold.support.memo import Remembered

# Tiles are preferred if full-width streaming needs at least WORTHWHILE times their time. From CLEARLY on,
# calls with more rows cannot make up for the difference, and are not tried.
WORTHWHILE, CLEARLY = 1.05, 1.2


def best_streamed(search: StreamingSearch) -> Streamed | list[InputError]:
    """Return the best streaming partition that is found, in tiles of columns if rows are slow.

    Returns:
        The partition with its kernels, or the reasons why nothing fits.
    """
    if search.allowed is None or search.options.io != "rows":
        return _best_rows(search)
    free = _best_rows(search.without_limit)
    if not isinstance(free, Streamed) or free.memory.size > search.allowed:
        return _best_rows(search)
    # Prefer the plan found without a RAM limit unless others are better.
    others = [search.with_more_rows(search.with_fewer_non_contiguous_buffers(free))]
    best_cut = search.best_of(search.cuts.shortlist)
    if best_cut is not None:
        others.append(search.with_more_rows(best_cut, OTHER_WIDER_LOOKS))
    best = min([free, *others], key=search.value)
    check_memory(best.memory, [candidate.kernel for candidate in best.chosen])
    return best


def _best_rows(search: StreamingSearch) -> Streamed | list[InputError]:
    """Return the best streaming partition, without the use of a plan that ignores the RAM limit."""
    refusals: list[InputError] = []
    planners = [*search.cuts.shortlist, *search.with_non_contiguous_buffers]
    best = search.best_of(planners, None, refusals)
    if best is None:
        return refusals
    if search.options.ram is None:
        best = search.with_fewer_non_contiguous_buffers(search.with_free_non_contiguous_buffers(best))
        best = search.with_more_rows(search.decided(best.planner, best, thorough=True) or best)
        if not best.memory.arena.proved:
            kernels = [candidate.kernel for candidate in best.chosen]
            best = replace(best, memory=best.planner.plan(kernels, best.calls, thorough=True))
    else:
        tiled = _Tiles(search).fitting() if best.is_slow and _may_be_tiles(search) else None
        if tiled is None or CLEARLY * tiled.cost > best.cost:
            best = _fastest(search, best, planners)
        if tiled is not None and WORTHWHILE * tiled.cost <= best.cost:
            return tiled
    check_memory(best.memory, [candidate.kernel for candidate in best.chosen])
    return best


def _fastest(search: StreamingSearch, best: Streamed, planners: Sequence[StreamPlanner]) -> Streamed:
    """Return the best partition, or another one, with calls that compute more rows if that is better."""
    # Kernels that read no ring buffers may gain more by computing several rows than ring buffers save.
    plain = [planner for planner in planners if not any(region.rings for region in planner.regions)]
    other = search.best_of(plain) if best.rings else None
    best = search.with_more_rows(search.with_fewer_non_contiguous_buffers(best))
    others = [search.with_more_rows(other, OTHER_WIDER_LOOKS)] if other is not None else []
    return min([best, *others], key=search.value)


def best_tiled(search: StreamingSearch, refusals: Sequence[InputError]) -> Streamed:
    """Return a fitting partition in tiles of columns with the least work; the first one that is not slow.

    Raises:
        UnsupportedModelError: not even the first layer can be streamed.
        InputError: nothing fits the RAM or the flash that the options allow.
    """
    if not _may_be_tiles(search):
        raise search.refusal(refusals)
    tiles = _Tiles(search)
    found = tiles.fitting()
    if found is None:
        # The limit that an error suggests must work.
        with_least_memory = tiles.tilings.with_least_memory(search.with_least_memory)
        found = next(filter(None, map(tiles.best_of, with_least_memory)), None)
        if found is None:
            raise search.refusal(refusals, [tiles.searches[each] for each in with_least_memory])
    return found


def _may_be_tiles(search: StreamingSearch) -> bool:
    """Return whether tiles are possible: they read the caller's image again, and only pay with a limit."""
    return search.allowed is not None and search.options.io == "caller"


class _Tiles:
    """Tilings with the best partitions that are found for them.

    Attributes:
        searches: searches of the tilings that were evaluated.
    """

    def __init__(self, search: StreamingSearch):
        self.tilings = Tilings(search.cuts)
        self._search = search
        self.searches: dict[StreamTiling, StreamingSearch] = {}
        self._limit = search.allowed or 0
        self._remembered = Remembered()

    def fitting(self) -> Streamed | None:
        """Return the first partition that is not slow, or the fastest one; None if nothing fits."""
        found: list[Streamed] = []
        for tiling in self.tilings.fitting(self._limit):
            best = self.best_of(tiling)
            if best is not None:
                found.append(best)
                if not best.is_slow:
                    break
        return min(found, key=lambda each: each.cost, default=None)

    def best_of(self, tiling: StreamTiling) -> Streamed | None:
        """Return the best partition with some tiles; None if nothing fits."""
        return self._remembered(tiling, lambda: self._find_best(tiling))

    def _find_best(self, tiling: StreamTiling) -> Streamed | None:
        tiles = self.searches[tiling] = StreamingSearch(
            self.tilings.partitions_of(tiling), self._search.reference
        )
        best = tiles.best_of(tiles.cuts.shortlist)
        if best is None or best.is_slow:
            best = tiles.best_of(tiles.with_non_contiguous_buffers, best)
        if best is None:
            return None
        best = tiles.with_more_rows(best, OTHER_WIDER_LOOKS)
        check_memory(best.memory, [candidate.kernel for candidate in best.chosen])
        return best
