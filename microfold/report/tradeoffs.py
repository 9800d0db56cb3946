"""What a model can give up: RAM, flash and time against each other, over levels and budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from microfold.errors import InputError
from microfold.options import OPTIMIZE, Options
from microfold.program import Program

# Budgets of RAM that are tried below the arena of each level, and budgets of flash between levels.
RAM_STEPS, FLASH_STEPS = 6, 3
# Each budget of RAM is the last arena, less this part of it.
RAM_PART = 16


@dataclass(frozen=True)
class Tradeoff:
    """One way to compile a model; bytes, and estimates of one run.

    Attributes:
        optimize, ram_budget, flash_budget: the options that lead to it; budgets are None where there is none.
        ram: arena and state.
        flash: constants, and an estimate of the code of all kernels.
        estimated_cycles: None if the target has no model of cycles.
    """

    optimize: str
    ram_budget: int | None
    flash_budget: int | None
    ram: int
    flash: int
    estimated_instructions: int | None
    estimated_cycles: int | None


def tradeoff(program: Program) -> Tradeoff:
    """What a compilation takes."""
    functions = {layer.call.function: layer.kernel.code for layer in program.layers}
    options = program.options
    return Tradeoff(
        options.optimize,
        options.ram,
        options.flash,
        program.arena.size + program.state_size,
        program.weight_bytes + sum(functions.values()),
        program.estimated_instructions,
        program.estimated_cycles,
    )


def tradeoffs(options: Options, build: Callable[[Options], Program]) -> Iterator[Tradeoff]:
    """All levels, less and less RAM at each of them, and budgets of flash between them.

    Args:
        options: without a level and budgets of their own.
        build: compiles; raises InputError where budgets are not met.

    Raises:
        MicrofoldError: the model cannot be compiled.
    """
    programs = [build(replace(options, optimize=level)) for level in OPTIMIZE]
    for program in programs:
        yield tradeoff(program)
        yield from _less_ram(program, build)
    least, most = (end(program.weight_bytes for program in programs) for end in (min, max))
    for step in range(FLASH_STEPS):
        flash = least + (most - least) * step // FLASH_STEPS
        try:
            program = build(replace(options, flash=flash))
        except InputError:
            continue
        yield tradeoff(program)
        yield from _less_ram(program, build)


def _less_ram(program: Program, build: Callable[[Options], Program]) -> Iterator[Tradeoff]:
    """With the same options and less and less RAM, as long as there is a plan."""
    for _ in range(RAM_STEPS):
        now = program.arena.size + program.state_size
        try:
            program = build(replace(program.options, ram=now - max(program.arena.size // RAM_PART, 1)))
        except InputError:
            return
        yield tradeoff(program)
