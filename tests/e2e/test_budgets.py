"""Limits of RAM and flash, from the least that is possible to what a build takes without one."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_file
from microfold.errors import BudgetError
from microfold.lowering.streamed import CYCLES_PER_COPIED_BYTE
from microfold.options import WHOLE_IO, Options
from microfold.program import Program
from tests.e2e.refusals import needed
from tests.sampling import sampled, sampled_rows

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "tests" / "models" / "made"
MODELS = ("cnn_int8", "preact_bn_int8", "dscnn_bn_int8", "digits")
STEPS = 8
# Estimates leave out a little: kernels are chosen one by one.
SLACK = 1.01
# Times as many cycles that a build with more RAM may take: rows are taken only where they save that much.
MORE_RAM = 1.025


def _path(model: str) -> Path:
    return ROOT / "examples" / "digits" / "digits.tflite" if model == "digits" else MADE / f"{model}.tflite"


def _program(model: str, core: str, ram: int | None = None, flash: int | None = None) -> Program:
    options = Options(io="caller", ram=ram, flash=flash, objective="cycles=1")
    return compile_file(_path(model), target.load(core), options)


def _ram(program: Program) -> int:
    return program.arena.size + program.state_size


def _time(program: Program) -> float:
    """Estimated cycles, or instructions where these are not modelled, moves of rows among them."""
    estimate = program.estimated_cycles or program.estimated_instructions
    assert estimate is not None
    moved = program.stream.moved if program.stream is not None else 0
    return estimate + CYCLES_PER_COPIED_BYTE * moved


def _within(model: str, core: str, options: Options) -> Program | BudgetError:
    """A build, or the refusal; all that this says would do does."""
    try:
        return compile_file(_path(model), target.load(core), options, explain=True)
    except BudgetError as refused:
        refusal = refused
    assert refusal.remedies, refusal
    for remedy in refusal.remedies:
        allowed = replace(options, **remedy)
        program = compile_file(_path(model), target.load(core), allowed)
        assert allowed.ram is None or _ram(program) <= allowed.ram
        assert allowed.flash is None or program.flash <= allowed.flash
        assert all(str(value) in str(refusal) for value in remedy.values())
    return refusal


def _plainly_within(model: str, core: str, options: Options) -> Program | BudgetError:
    """The same with no word of what else would do."""
    try:
        return compile_file(_path(model), target.load(core), options)
    except BudgetError as refusal:
        return refusal


def _allowed(model: str, core: str, **limits: int) -> int:
    """The least that a refusal says would do."""
    with pytest.raises(BudgetError) as refused:
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
        assert times[-1] <= MORE_RAM * min(times)
    assert _allowed(model, core, ram=least - 8) <= least
    assert times[-1] <= SLACK * _time(free)


@pytest.mark.parametrize("io", WHOLE_IO)
def test_whole_tensors_that_just_fit(io: str) -> None:
    """They are not taken where rows are faster, if only time has a price."""
    path, core = _path("dscnn_bn_int8"), target.load("cortex-m4")
    options = Options(io=io, objective="cycles=1")
    free = compile_file(path, core, options)
    rows = compile_file(path, core, replace(options, ram=_ram(free) - 8))
    assert free.stream is None
    assert rows.stream is not None
    fitting = compile_file(path, core, replace(options, ram=_ram(free)))
    assert _time(fitting) <= MORE_RAM * _time(rows)


@pytest.mark.slow
@pytest.mark.parametrize("model", sampled(MODELS, 2))
def test_flash(model: str) -> None:
    free = compile_file(_path(model), target.load("cortex-m4"), Options(io="caller", objective="cycles=1"))
    least = _allowed(model, "cortex-m4", flash=8)
    times: list[float] = []
    for flash in _sweep(least, free.flash):
        program = _program(model, "cortex-m4", flash=flash)
        assert program.flash <= flash
        # Kernels are chosen by cycles: of two, either may take fewer instructions.
        assert program.estimated_cycles is not None
        times.append(program.estimated_cycles)
        assert times[-1] <= SLACK * min(times)


@pytest.mark.slow
@pytest.mark.parametrize("model", sampled(MODELS, len(MODELS)))
def test_both(model: str) -> None:
    """Where both are short, both are kept, or the refusal says what to allow, and that does."""
    free = _program(model, "cortex-m4")
    kept = 0
    least_ram, least_flash = (_allowed(model, "cortex-m4", **{name: 8}) for name in ("ram", "flash"))
    rams = (least_ram - 8, *_sweep(least_ram, _ram(free))[::2])
    flashes = (least_flash - 8, *_sweep(least_flash, free.flash)[::2])
    for row, ram in enumerate(rams):
        for column, flash in enumerate(flashes):
            options = Options(io="caller", ram=ram, flash=flash, objective="cycles=1")
            # To build all that refusals name takes long: along the diagonal it is done.
            build = _within if row == column else _plainly_within
            program = build(model, "cortex-m4", options)
            if isinstance(program, Program):
                assert _ram(program) <= ram
                assert program.flash <= flash
                kept += 1
    assert kept > 9


@pytest.mark.slow
def test_what_refusals_say() -> None:
    """The budget that decides is named, by itself; where both are too low, both are."""
    model, core = "cnn_int8", "cortex-m4"
    ram, flash = _allowed(model, core, ram=8), _allowed(model, core, flash=8)
    free = _program(model, core)
    short = (
        (ram - 8, free.flash, r"must fit \d+ bytes of RAM; .*the flash limit alone can be met"),
        (_ram(free), flash - 8, r"must fit \d+ bytes of flash; .*the RAM limit alone can be met"),
        (
            ram - 8,
            flash - 8,
            r"must fit \d+ bytes of flash; .*: allow \d+ bytes of RAM and \d+ bytes of flash",
        ),
    )
    for ram, flash, text in short:
        refusal = _within(model, core, Options(io="caller", ram=ram, flash=flash))
        assert re.search(text, str(refusal)), refusal


@pytest.mark.slow
def test_another_io_is_named_where_it_fits() -> None:
    """What the arena has no room for may lie in the caller's memory; what does not do is not said to."""
    with pytest.raises(BudgetError) as refused:
        compile_file(_path("digits"), target.load("cortex-m4"), Options(ram=8))
    for allowed, named in ((needed(refused.value) - 8, True), (8, False)):
        refusal = _within("digits", "cortex-m4", Options(ram=allowed))
        assert isinstance(refusal, BudgetError)
        assert ({"io": "caller"} in refusal.remedies) == named == ("or use io=caller" in str(refusal))
        assert str(refusal).count("must fit") == 1


@pytest.mark.parametrize("model", ["cnn_aeq_dynwi2c", "gru_unrolled_dyn"])
def test_layers_with_several_results(model: str) -> None:
    """Whatever a graph has, a limit is kept, or refused with what to allow."""
    free = _program(model, "host")
    ram = _ram(free) * 3 // 5
    program = _within(model, "host", Options(io="caller", ram=ram))
    assert isinstance(program, BudgetError) or _ram(program) <= ram
