"""Cuts, and regions behind tiles, that are passed over need more than those that are taken."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.ir.views import ALIGNMENT
from microfold.lowering import chosen_kernels, selection_result
from microfold.lowering.stream_tiles import BEHIND_LOOKS, Tilings
from microfold.lowering.streaming_partitions import SHORTLIST_SIZE
from microfold.lowering.streaming_search import StreamingSearch
from microfold.options import Options
from microfold.plan.stream.planner import StreamPlanner
from tests.e2e.test_tiles import WideNets

SEEDS = range(6)


@pytest.fixture(scope="module")
def searches() -> list[StreamingSearch]:
    """Of some networks, before anything is looked at."""
    found: list[StreamingSearch] = []

    def keep(search: StreamingSearch) -> None:
        found.append(search)
        raise InputError("that is enough")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chosen_kernels, "prefers_streaming", lambda _: True)
        patch.setattr(selection_result, "best_streamed", keep)
        for seed in SEEDS:
            with pytest.raises(InputError, match="enough"):
                compile_graph(WideNets(seed).wide(), target.load("cortex-m4"), Options(io="caller"))
    return found


def test_prefixes(searches: list[StreamingSearch]) -> None:
    passed_over = 0
    for search in searches:
        cuts = search.cuts
        everything = cuts._needs([region] for region in cuts.prefixes)
        found = cuts._needs_of_prefixes()
        assert (
            sorted(need for need, _ in found)[:SHORTLIST_SIZE]
            == sorted(n for n, _ in everything)[:SHORTLIST_SIZE]
        )
        passed_over += len(everything) - len(found)
    assert passed_over > 0


def behind(planner: StreamPlanner) -> int:
    """Bytes that are alive at most behind the first region."""
    layers = (index for index, each in enumerate(planner.planned) if each.region > 0)
    return max((planner.alive(index) for index in layers), default=0) * ALIGNMENT


@pytest.mark.slow
def test_what_lies_behind_tiles(searches: list[StreamingSearch]) -> None:
    passed_over = 0
    for search in searches:
        tilings = Tilings(search.cuts)
        for region in search.cuts.prefixes:
            everything = [
                (
                    min(behind(search.cuts.planner([region, form])) for form in tilings._forms(after)),
                    after.end,
                )
                for after in search.cuts.regions_from(region.end)
            ]
            found = tilings._find_needs_behind(region)
            assert found[:BEHIND_LOOKS] == sorted(everything)[:BEHIND_LOOKS]
            passed_over += len(everything) - len(found)
    assert passed_over > 0
