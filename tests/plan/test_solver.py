"""Refusals for want of RAM against a solver: the bound that is proved, and the arena that is said to do."""

from __future__ import annotations

import re

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.lowering.selection_result import SelectionResult
from microfold.options import Options
from tests.e2e.refusals import needed
from tests.needs import need_modules
from tests.plan.stream.nets import Nets
from tests.sampling import sampled

TOGETHER = 12


def _refusal(selected: SelectionResult) -> InputError | None:
    """Why nothing fits; None where nothing is in the arena."""
    try:
        _ = selected.chosen
    except InputError as refused:
        return refused
    return None


@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m0plus", "cortex-m55"])
@pytest.mark.parametrize("first", sampled(range(0, 12 * TOGETHER, TOGETHER), 12))
def test_least_arena(first: int, core: str) -> None:
    """Whole tensors of small networks: all kernels, all orders, all places."""
    need_modules("highspy")
    from tests.plan.solver import least_arena

    checked = 0
    for seed in range(first, first + TOGETHER):
        for io in ("caller", "arena"):
            graph = compile_graph(Nets(seed).draw(), target.load(core), Options(io=io, optimize="size")).graph
            selected = SelectionResult(graph, target.load(core), Options(io=io, ram=8), None)
            refused = _refusal(selected)
            if refused is None:
                continue
            proved = re.search(r"less than (\d+), which is proved", str(refused))
            least = least_arena(graph, [r.layer for r in selected.rankings], caller=io == "caller")
            assert int(proved[1] if proved else 0) <= least == needed(refused), (seed, io)
            checked += 1
    assert checked > TOGETHER
