"""Instructions and cycles of bundled models on simulated cores, each counted once per session."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from msgspec import Struct

from microfold import target
from microfold.compiler import compile_file
from microfold.options import Options
from microfold.program import Program
from microfold.simulate.program import simulator
from microfold.verification import verify

_MADE = Path(__file__).parent / "models" / "made"
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MODELS = {
    "digits": EXAMPLES / "digits" / "digits.tflite",
    **{
        name: _MADE / f"{name}.tflite"
        for name in ("attn_int8", "cnn_int8", "dscnn_bn_int8", "preact_bn_int8", "tcn1d_int8")
    },
}
CORES = ("cortex-m4", "cortex-m33", "cortex-m55", "cortex-m3", "cortex-m0plus")


class Counts(Struct, frozen=True):
    """Instructions of one run: by the cost model, and executed."""

    estimated: int
    executed: int


@functools.cache
def counts(model: str, core: str) -> Counts:
    """Those of one of `MODELS`."""
    program = compile_file(MODELS[model], target.load(core))
    assert program.estimated_instructions is not None
    return Counts(program.estimated_instructions, executed(program))


def executed(program: Program) -> int:
    """Instructions of one run on random inputs."""
    with simulator(program) as machine:
        return machine.run(_calls(program), layers=False).instructions[0]


@functools.cache
def cycles(model: str, core: str, level: str) -> int:
    """Estimated ones of a run of one of `MODELS` on random inputs; the level is one of `OPTIMIZE`."""
    program = compile_file(MODELS[model], target.load(core), Options(optimize=level))
    timing = program.target.cycle_model
    assert timing is not None
    with simulator(program) as machine:
        (trace,) = machine.firmware(hooked=False).trace(_calls(program), timing)
    return sum(trace.cycles)


def _calls(program: Program) -> list[tuple[np.ndarray, ...]]:
    return verify.input_sets([buffer.type for buffer in program.inputs], 4)[3:]
