"""Random networks within random limits: promises are kept, refusals are true, more memory is never slower."""

from __future__ import annotations

import math
import random

import pytest

from microfold import target
from microfold.errors import BudgetError
from microfold.ir.types import DType
from microfold.kernels.selection.objective import Limits, Objective
from microfold.lowering.choose import Chooser
from microfold.lowering.optimised import ImportedModel, optimised
from microfold.options import Options
from tests.kernels.random_networks import random_network
from tests.lowering.figures import figures_of_build
from tests.sampling import sampled

CORES = ("cortex-m4", "cortex-m55", "cortex-m0plus", "cortex-m7")
DTYPES = (DType.INT8, DType.INT8, DType.INT16, DType.FLOAT32)
# Random limits of each network and memory, from the least to what the fastest kernels take.
LIMITS = 4
# Cycles are sums of floating-point numbers, and compared in millionths.
ROUNDING = 1 + 2e-6
TIME = Objective(cycles=1)


@pytest.mark.parametrize("seed", sampled(range(1000), 100))
def test_kernels_of_a_graph(seed: int) -> None:
    pick = random.Random(seed)
    core, options = target.load(pick.choice(CORES)), Options()
    graph = random_network(seed, pick.choice(DTYPES))
    chooser = optimised(ImportedModel.of(graph, core, options)).selected.chooser
    fastest = chooser.best(TIME)
    assert fastest is not None
    for memory, most in (("arena", fastest.figures.arena), ("flash", fastest.figures.flash)):
        least = _least(chooser, memory)
        times = [math.inf]
        for limit in sorted({least, most, *(pick.randint(least, most) for _ in range(LIMITS))}):
            found = chooser.best(TIME, Limits(**{memory: limit}))
            assert found is not None and getattr(found.figures, memory) <= limit
            times.append(found.figures.cycles)
            assert times[-1] <= times[-2] * ROUNDING, (memory, limit, times)
        assert times[-1] <= fastest.figures.cycles * ROUNDING


def _least(chooser: Chooser, memory: str) -> int:
    """Return the least bytes: they do, and a byte less does not."""
    found = chooser.best(Objective(**{memory: 1.0}))
    assert found is not None
    least = int(getattr(found.figures, memory))
    assert chooser.best(TIME, Limits(**{memory: least - 1})) is None
    return least


@pytest.mark.parametrize("seed", sampled(range(1000), 200))
def test_builds(seed: int) -> None:
    """Builds keep limits, and what a refusal names does."""
    pick = random.Random(seed)
    core = target.load(pick.choice(CORES))
    graph = random_network(seed, pick.choice(DTYPES))
    for memory in ("ram", "flash"):
        with pytest.raises(BudgetError) as refused:
            figures_of_build(graph, core, Options(**{memory: 0}))  # type: ignore[arg-type]
        least = refused.value.least(memory)
        assert least is not None
        for limit in (least, least + pick.randint(1, least)):
            found = figures_of_build(graph, core, Options(**{memory: limit}))  # type: ignore[arg-type]
            assert (found.arena if memory == "ram" else found.flash) <= limit
