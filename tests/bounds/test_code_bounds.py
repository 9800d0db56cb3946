"""Code of bundled models compiled for size stays within what it was.

`pytest --update-golden` lowers the figures of `code_bounds.toml` to what is measured, and adds those that are
missing; it raises none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_file
from microfold.options import Options
from microfold.simulate.toolchain import ARM_COMPILER
from microfold.verification.measure import measure
from tests.bounds.recorded import Recorded
from tests.counts import CORES, MODELS
from tests.needs import need_tools
from tests.sampling import sampled

BOUNDS = Recorded(
    Path(__file__).parent / "code_bounds.toml",
    "# Bytes of code at --optimize size, by core and bundled model: see test_code_bounds.py.",
    "bytes of code",
    0.15,
)


def _code(model: str, core: str) -> int:
    measured = measure(compile_file(MODELS[model], target.load(core), Options(optimize="size")))
    assert measured is not None
    return measured.code


@pytest.mark.slow
@pytest.mark.parametrize("core", sampled(CORES, len(CORES)))
def test_code_stays_within_bounds(core: str, request: pytest.FixtureRequest) -> None:
    need_tools(ARM_COMPILER)
    found = {model: _code(model, core) for model in MODELS}
    larger = BOUNDS.larger(core, found, update=request.config.getoption("--update-golden"))
    assert not larger, "; ".join(larger)
