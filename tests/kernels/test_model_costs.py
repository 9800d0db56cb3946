"""Cycles that whole small models are estimated to take, beside what is executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_file
from microfold.simulate.program import simulator
from microfold.verification import verify
from tests.needs import CROSS_TOOLS
from tests.sampling import sampled

ROOT = Path(__file__).parents[2]
MODELS = {
    "digits": ROOT / "examples/digits/digits.tflite",
    **{name: ROOT / f"tests/models/made/{name}.tflite" for name in ("cnn_int8", "cnn_f32", "cnn_int16x8")},
}
# By how much estimates may be off, as a part of what is executed: M55's own error is 20 %, and those of a
# function for one layer of one input channel are a fourth too low there.
LARGEST_ERROR = 0.25


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "core", sampled(["cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "cortex-m85"])
)
def test_models_take_about_what_is_estimated(core: str, name: str) -> None:
    loaded = target.load(core)
    assert loaded.cycle_model is not None
    program = compile_file(MODELS[name], loaded)
    calls = verify.input_sets([buffer.type for buffer in program.inputs], 4)[3:]
    with simulator(program) as machine:
        executed = machine.trace(calls, loaded.cycle_model).total[0]
    estimated = program.estimated_cycles
    assert estimated is not None
    assert estimated / executed == pytest.approx(1, abs=LARGEST_ERROR)
