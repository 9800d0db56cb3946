"""Estimated and executed instructions of bundled models on simulated cores, each counted once per session."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from microfold import target
from microfold.compiler import compile_file
from microfold.program import Program
from microfold.simulate.program import simulator
from microfold.verification import verify

_MADE = Path(__file__).parent / "models" / "made"
_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MODELS = {
    "digits": _EXAMPLES / "digits" / "digits.tflite",
    **{
        name: _MADE / f"{name}.tflite"
        for name in ("attn_int8", "cnn_int8", "dscnn_bn_int8", "preact_bn_int8", "tcn1d_int8")
    },
}
CORES = ("cortex-m4", "cortex-m33", "cortex-m55", "cortex-m3", "cortex-m0plus")


@dataclass(frozen=True)
class Counts:
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
    calls = verify.input_sets([buffer.type for buffer in program.inputs], 4)[3:]
    with simulator(program) as machine:
        return machine.run(calls, layers=False).instructions[0]
