"""Models of which some layers are computed row by row: which these are, and with which kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from microfold.errors import InputError
from microfold.lowering.stream_search import OTHER_WIDER_LOOKS, Search
from microfold.lowering.stream_tiles import Tiling, Tilings
from microfold.lowering.streamed import Streamed
from microfold.plan.stream.check_memory import check_memory

# With a limit of RAM, cuts whose calls are tried with more rows: so many, and others than the best one only
# if they take less than so many times as long.
FINALISTS, NEARLY = 3, 1.05


def in_rows(search: Search) -> Streamed | list[InputError]:
    """The cut with the smallest arena; with a limit of RAM, a faster one that fits, if it pays.

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
    options = search.options
    refusals: list[InputError] = []
    looked_at = search.looked_at(search.cuts.promising, refusals)
    if options.ram is not None:
        looked_at += search.looked_at(search.with_rows_apart, refusals)
    if not looked_at:
        return refusals
    best = min(looked_at, key=search.order)
    if options.ram is None:
        best = search.widened(search.with_fewer_rows_apart(search.with_free_rows_apart(best)))
        if not best.memory.arena.proved:
            kernels = [candidate.kernel for candidate in best.chosen]
            best = replace(best, memory=best.planner.plan(kernels, best.calls, thorough=True))
    else:
        near = sorted((found for found in looked_at if found.cost < NEARLY * best.cost), key=search.order)
        # Kernels that read no rings may gain more by computing several rows than rings save.
        plain = [found for found in near if not found.rings]
        others = dict.fromkeys([*near[1:FINALISTS], *plain[:1]])
        others.pop(best, None)
        best = search.widened(search.with_fewer_rows_apart(best))
        best = min([best, *(search.widened(each, OTHER_WIDER_LOOKS) for each in others)], key=search.order)
    check_memory(best.memory, [candidate.kernel for candidate in best.chosen])
    return best


def in_tiles(search: Search, refusals: Sequence[InputError]) -> Streamed:
    """A cut in tiles of columns that fits, of those with the least work.

    Raises:
        UnsupportedModelError: not even the first layer works by rows.
        InputError: nothing fits the RAM or the flash that the options allow.
    """
    limit = search.allowed
    if limit is None or search.options.io != "caller":
        raise search.refusal(refusals)
    tilings = Tilings(search.cuts)
    tried: dict[Tiling, Search] = {}

    def best_of(tiling: Tiling) -> Streamed | None:
        tiles = tried[tiling] = Search(tilings.cuts_of(tiling))
        looked_at = tiles.looked_at(tiles.cuts.promising, []) or tiles.looked_at(tiles.with_rows_apart, [])
        if not looked_at:
            return None
        best = tiles.widened(min(looked_at, key=tiles.order), OTHER_WIDER_LOOKS)
        check_memory(best.memory, [candidate.kernel for candidate in best.chosen])
        return best

    def first_of(tilings: Sequence[Tiling]) -> Streamed | None:
        return next(filter(None, map(best_of, tilings)), None)

    found = first_of(tilings.fitting(limit))
    if found is None:
        # What a refusal names must do.
        leanest = tilings.leanest(search.leanest)
        found = first_of([each for each in leanest if each not in tried])
        if found is None:
            raise search.refusal(refusals, [tried[each] for each in leanest])
    return found
