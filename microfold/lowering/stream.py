"""Models of which some layers are computed row by row: which these are, and with which kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from microfold.errors import InputError
from microfold.lowering.stream_search import OTHER_WIDER_LOOKS, Search
from microfold.lowering.stream_tiles import Tiling, Tilings
from microfold.lowering.streamed import Streamed
from microfold.plan.stream.check_memory import check_memory
from microfold.support.memo import Remembered

# With a limit of RAM, cuts whose calls are tried with more rows: so many, and others than the best one only
# if they take less than so many times as long.
FINALISTS, NEARLY = 3, 1.05
# Tiles are taken where rows of full width fit, too, if these take so many times as long; if that is clear,
# calls with more rows do not make up for it.
WORTHWHILE, CLEARLY = 1.05, 1.2


def in_rows(search: Search) -> Streamed | list[InputError]:
    """The cut with the smallest arena; with a limit of RAM, a faster one that fits, if it pays.

    Where rows take slow kernels to fit, it may be in tiles of columns.

    Returns:
        It, or the reasons why nothing fits.
    """
    if search.allowed is None or search.options.io != "rows":
        return _best_rows(search)
    free = _best_rows(search.without_limit)
    if not isinstance(free, Streamed) or free.memory.size > search.allowed:
        return _best_rows(search)
    # What there is with no limit is as good as any, unless others save time.
    others = [search.widened(search.with_fewer_rows_apart(free))]
    looked_at = search.looked_at(search.cuts.promising, [])
    if looked_at:
        others.append(search.widened(min(looked_at, key=search.order), OTHER_WIDER_LOOKS))
    best = free
    for found in sorted(others, key=lambda each: each.flash):
        best = found if search.pays(best, found) else best
    check_memory(best.memory, [candidate.kernel for candidate in best.chosen])
    return best


def _best_rows(search: Search) -> Streamed | list[InputError]:
    """See `in_rows`: under a limit, the fastest one."""
    refusals: list[InputError] = []
    looked_at = search.looked_at(search.cuts.promising, refusals)
    if search.options.ram is not None:
        looked_at += search.looked_at(search.with_rows_apart, refusals)
    if not looked_at:
        return refusals
    best = min(looked_at, key=search.order)
    if search.options.ram is None:
        best = search.widened(search.with_fewer_rows_apart(search.with_free_rows_apart(best)))
        if not best.memory.arena.proved:
            kernels = [candidate.kernel for candidate in best.chosen]
            best = replace(best, memory=best.planner.plan(kernels, best.calls, thorough=True))
    else:
        tiled = _Tiles(search).fitting() if best.is_slow and _may_be_tiles(search) else None
        if tiled is None or CLEARLY * tiled.cost > best.cost:
            best = _fastest(search, best, looked_at)
        if tiled is not None and WORTHWHILE * tiled.cost <= best.cost:
            return tiled
    check_memory(best.memory, [candidate.kernel for candidate in best.chosen])
    return best


def _fastest(search: Search, best: Streamed, looked_at: Sequence[Streamed]) -> Streamed:
    """The best cut by rows, or another one, with calls that compute more rows where that is faster."""
    near = sorted((found for found in looked_at if found.cost < NEARLY * best.cost), key=search.order)
    # Kernels that read no rings may gain more by computing several rows than rings save.
    plain = [found for found in near if not found.rings]
    others = dict.fromkeys([*near[1:FINALISTS], *plain[:1]])
    others.pop(best, None)
    best = search.widened(search.with_fewer_rows_apart(best))
    return min([best, *(search.widened(each, OTHER_WIDER_LOOKS) for each in others)], key=search.order)


def in_tiles(search: Search, refusals: Sequence[InputError]) -> Streamed:
    """A cut in tiles of columns that fits: the first one that is not slow, of those with the least work.

    Raises:
        UnsupportedModelError: not even the first layer works by rows.
        InputError: nothing fits the RAM or the flash that the options allow.
    """
    if not _may_be_tiles(search):
        raise search.refusal(refusals)
    tiles = _Tiles(search)
    found = tiles.fitting()
    if found is None:
        # What a refusal names must do.
        leanest = tiles.tilings.leanest(search.leanest)
        found = next(filter(None, map(tiles.best_of, leanest)), None)
        if found is None:
            raise search.refusal(refusals, [tiles.searches[each] for each in leanest])
    return found


def _may_be_tiles(search: Search) -> bool:
    """Tiles read the caller's image again, and only a limit makes them worth their work."""
    return search.allowed is not None and search.options.io == "caller"


class _Tiles:
    """Tilings with the best cuts that are found for them.

    Attributes:
        searches: of the tilings that were looked at.
    """

    def __init__(self, search: Search):
        self.tilings = Tilings(search.cuts)
        self.searches: dict[Tiling, Search] = {}
        self._limit = search.allowed or 0
        self._remembered = Remembered()

    def fitting(self) -> Streamed | None:
        """The first cut that is not slow, or the fastest one; None: nothing fits."""
        found: list[Streamed] = []
        for tiling in self.tilings.fitting(self._limit):
            best = self.best_of(tiling)
            if best is not None:
                found.append(best)
                if not best.is_slow:
                    break
        return min(found, key=lambda each: each.cost, default=None)

    def best_of(self, tiling: Tiling) -> Streamed | None:
        """The best cut with some tiles; None: nothing fits."""
        return self._remembered(tiling, lambda: self._find_best(tiling))

    def _find_best(self, tiling: Tiling) -> Streamed | None:
        tiles = self.searches[tiling] = Search(self.tilings.cuts_of(tiling))
        looked_at = tiles.looked_at(tiles.cuts.promising, [])
        if all(each.is_slow for each in looked_at):
            looked_at += tiles.looked_at(tiles.with_rows_apart, [])
        if not looked_at:
            return None
        best = tiles.widened(min(looked_at, key=tiles.order), OTHER_WIDER_LOOKS)
        check_memory(best.memory, [candidate.kernel for candidate in best.chosen])
        return best
