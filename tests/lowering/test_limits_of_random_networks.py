"""Random networks within random limits: promises are kept, refusals are true, more memory is never slower."""

from __future__ import annotations

import math
import random

import pytest

from microfold import target
from microfold.errors import BudgetError
from microfold.ir.graph import Graph
from microfold.ir.types import DType
from microfold.kernels.selection.objective import Figures
from microfold.options import Options
from microfold.target import Target
from tests.kernels.random_networks import random_network
from tests.lowering.figures import figures_of_build
from tests.sampling import sampled

CORES = ("cortex-m4", "cortex-m55", "cortex-m0plus", "cortex-m7")
DTYPES = (DType.INT8, DType.INT8, DType.INT16, DType.FLOAT32)
# Limits of each network and memory, from the least to what the fastest kernels take.
STEPS = 4
# Cycles are sums of floating-point numbers, whose order depends on the choice.
ROUNDING = 1 + 1e-9


@pytest.mark.parametrize("seed", sampled(range(1000), 100))
def test_limits(seed: int) -> None:
    pick = random.Random(seed)
    core = target.load(pick.choice(CORES))
    graph = random_network(seed, pick.choice(DTYPES))
    fastest = figures_of_build(graph, core, Options(objective="cycles=1", rows="never"))
    for memory in ("ram", "flash"):
        least = _least(graph, core, memory)
        most = fastest.arena if memory == "ram" else fastest.flash
        limits = sorted(
            {least, max(most, least), *(pick.randint(least, max(most, least)) for _ in range(STEPS))}
        )
        times = [math.inf]
        for limit in limits:
            found = _within(graph, core, memory, limit)
            assert not isinstance(found, BudgetError), found
            assert (found.arena if memory == "ram" else found.flash) <= limit
            times.append(found.cycles)
            assert times[-1] <= times[-2] * ROUNDING, (memory, limits, times)
        assert times[-1] <= fastest.cycles * ROUNDING


def _least(graph: Graph, core: Target, memory: str) -> int:
    """Return the least bytes, which a refusal names: they do, and a byte less does not."""
    refusal = _within(graph, core, memory, 0)
    if isinstance(refusal, Figures):
        return 0  # there is nothing to place
    least = refusal.least(memory)
    assert least is not None
    assert isinstance(_within(graph, core, memory, least - 1), BudgetError)
    return least


def _within(graph: Graph, core: Target, memory: str, limit: int) -> Figures | BudgetError:
    """Return what the fastest kernels within a limit take, or why there are none."""
    options = Options(objective="cycles=1", rows="never", **{memory: limit})  # type: ignore[arg-type]
    try:
        return figures_of_build(graph, core, options)
    except BudgetError as refusal:
        return refusal
