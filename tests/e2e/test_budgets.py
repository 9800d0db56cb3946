"""Limits of RAM and flash, from the least that is possible to what a build takes without one."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_file
from microfold.errors import InputError
from microfold.lowering.arenas import WORTHWHILE
from microfold.lowering.streamed import MOVED_BYTE
from microfold.options import Options
from microfold.program import Program
from tests.e2e.refusals import needed
from tests.sampling import sampled, sampled_rows

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "tests" / "models" / "made"
MODELS = ("cnn_int8", "preact_bn_int8", "dscnn_bn_int8", "digits")
STEPS = 8
# Estimates leave out a little: kernels are chosen one by one.
SLACK = 1.01


def _path(model: str) -> Path:
    return ROOT / "examples" / "digits" / "digits.tflite" if model == "digits" else MADE / f"{model}.tflite"


def _program(model: str, core: str, ram: int | None = None, flash: int | None = None) -> Program:
    return compile_file(_path(model), target.load(core), Options(io="caller", ram=ram, flash=flash))


def _ram(program: Program) -> int:
    return program.arena.size + program.state_size


def _time(program: Program) -> float:
    """Estimated instructions, moves of rows among them."""
    estimate = program.estimated_instructions
    assert estimate is not None
    moved = program.stream.moved if program.stream is not None else 0
    return estimate + MOVED_BYTE * moved


def _within(model: str, core: str, **limits: int) -> Program | None:
    """A build, or None if it is refused with what to allow."""
    try:
        return _program(model, core, **limits)
    except InputError as refused:
        needed(refused)
        return None


def _allowed(model: str, core: str, **limits: int) -> int:
    """The least that a refusal says would do."""
    with pytest.raises(InputError) as refused:
        _program(model, core, **limits)
    return needed(refused.value)


def _sweep(least: int, most: int) -> list[int]:
    return [least + (most - least) * step // STEPS for step in range(STEPS + 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "core"), sampled_rows(itertools.product(MODELS, ["cortex-m4", "cortex-m0plus"]), 3)
)
def test_ram(model: str, core: str) -> None:
    """Every build keeps its promise, what is refused is below the least, and more RAM takes no more time."""
    free = _program(model, core)
    least = _allowed(model, core, ram=free.state_size + 8)
    times: list[float] = []
    for ram in _sweep(least, _ram(free)):
        program = _program(model, core, ram)
        assert _ram(program) <= ram
        times.append(_time(program))
        assert times[-1] <= SLACK * WORTHWHILE * min(times)
    assert _allowed(model, core, ram=least - 8) <= least
    assert times[-1] <= SLACK * _time(free)


@pytest.mark.slow
@pytest.mark.parametrize("model", sampled(MODELS, 2))
def test_flash(model: str) -> None:
    free = compile_file(_path(model), target.load("cortex-m4"), Options(io="caller", optimize="speed"))
    least = _allowed(model, "cortex-m4", flash=8)
    times: list[float] = []
    for flash in _sweep(least, free.weight_bytes):
        program = _program(model, "cortex-m4", flash=flash)
        assert program.weight_bytes <= flash
        times.append(_time(program))
        assert times[-1] <= SLACK * min(times)


@pytest.mark.slow
@pytest.mark.parametrize("model", sampled(MODELS, len(MODELS)))
def test_both(model: str) -> None:
    """Where both are short, both are kept, or the refusal says what to allow."""
    free = _program(model, "cortex-m4")
    kept = 0
    for ram in _sweep(_allowed(model, "cortex-m4", ram=8), _ram(free))[::2]:
        for flash in _sweep(_allowed(model, "cortex-m4", flash=8), free.weight_bytes)[::2]:
            program = _within(model, "cortex-m4", ram=ram, flash=flash)
            if program is not None:
                assert _ram(program) <= ram
                assert program.weight_bytes <= flash
                kept += 1
    assert kept > 9


@pytest.mark.parametrize("model", ["cnn_aeq_dynwi2c", "gru_unrolled_dyn"])
def test_layers_with_several_results(model: str) -> None:
    """Whatever a graph has, a limit is kept, or refused with what to allow."""
    free = _program(model, "host")
    ram = _ram(free) * 3 // 5
    program = _within(model, "host", ram=ram)
    assert program is None or _ram(program) <= ram
