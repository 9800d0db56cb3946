"""Estimated cycles of bundled models stay within what they were, on every core that has a model of them.

`pytest --update-golden` lowers the figures of `cycle_bounds.toml` to what is estimated, and adds those that
are missing; it raises none. They follow from executed instructions and the data in `targets`: they change
with either, and where figures of a core are corrected, its totals are raised by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bounds.recorded import Recorded
from tests.counts import cycles
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled_rows

BOUNDS = Recorded(
    Path(__file__).parent / "cycle_bounds.toml",
    "# Estimated cycles of one run, by simulated core, level and bundled model: see test_cycle_bounds.py.",
    "cycles",
    0.15,
)
# Images, dense layers, depthwise ones.
MODELS = ("digits", "attn_int8", "dscnn_bn_int8")
CASES = [
    *((core, "balanced") for core in ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7")),
    *((core, "balanced") for core in ("cortex-m33", "cortex-m55", "cortex-m85")),
    ("cortex-m7", "speed"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("core", "level"), sampled_rows(CASES))
def test_cycles_stay_within_bounds(core: str, level: str, request: pytest.FixtureRequest) -> None:
    need_tools(*CROSS_TOOLS, "cc")
    found = {model: cycles(model, core, level) for model in MODELS}
    slower = BOUNDS.larger(f"{core}_{level}", found, update=request.config.getoption("--update-golden"))
    assert not slower, "; ".join(slower)
