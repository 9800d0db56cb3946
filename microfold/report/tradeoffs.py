"""What a model can give up: RAM, flash and time against each other, over levels and budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from microfold.errors import InputError
from microfold.options import OPTIMIZE, Options
from microfold.program import Program
from microfold.report.what_if import pareto_front, time_of
from microfold.support.frozen import frozen

# Budgets of RAM that are tried below the arena of each level, and of each budget of flash between levels.
RAM_STEPS, RAM_STEPS_OF_FLASH, FLASH_STEPS = 12, 3, 3
# Each budget of RAM is the last arena, less this part of it: first of the large steps, then of the small ones
# down to the least.
RAM_PARTS = (6, 32)


@frozen
class Tradeoff:
    """One way to compile a model; bytes, and estimates of one run.

    Attributes:
        optimize, ram_budget, flash_budget: the options that lead to it; budgets are None where there is none.
        ram: arena and state.
        flash: constants, and an estimate of the code of all kernels.
        estimated_cycles: None if the target has no model of cycles.
    """

    optimize: Literal["size", "balanced", "speed"]
    ram_budget: int | None
    flash_budget: int | None
    ram: int
    flash: int
    estimated_instructions: int | None
    estimated_cycles: int | None

    @property
    def arguments(self) -> str:
        """The options of `build`."""
        found = [f"--optimize {self.optimize}"]
        found += [f"--ram {self.ram_budget}"] if self.ram_budget is not None else []
        found += [f"--flash {self.flash_budget}"] if self.flash_budget is not None else []
        return " ".join(found)


def tradeoff(program: Program) -> Tradeoff:
    """What a compilation takes."""
    functions = {layer.call.function: layer.kernel.code for layer in program.layers}
    options = program.options
    return Tradeoff(
        options.optimize,  # type: ignore[arg-type]  # Options checks it
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
        yield from _less_ram(program, build, RAM_STEPS)
    least, most = (end(program.weight_bytes for program in programs) for end in (min, max))
    for step in range(FLASH_STEPS):
        flash = least + (most - least) * step // FLASH_STEPS
        try:
            program = build(replace(options, flash=flash))
        except InputError:
            continue
        yield tradeoff(program)
        yield from _less_ram(program, build, RAM_STEPS_OF_FLASH)


def tradeoffs_front(options: Options, build: Callable[[Options], Program]) -> list[Tradeoff]:
    """Those of `tradeoffs` that no other beats, the least RAM first; of equals that of fewest options."""
    tried = [*tradeoffs(options, build)]
    found = {(t.ram, t.flash, time_of(t)): t for t in reversed(tried)}
    return sorted(pareto_front([*found.values()]), key=lambda t: (t.ram, t.flash))


def _less_ram(program: Program, build: Callable[[Options], Program], steps: int) -> Iterator[Tradeoff]:
    """With the same options and less and less RAM, as long as there is a plan."""
    parts = [*RAM_PARTS]
    for _ in range(steps):
        now = program.arena.size + program.state_size
        try:
            program = build(replace(program.options, ram=now - max(program.arena.size // parts[0], 1)))
        except InputError:
            parts.pop(0)
            if not parts:
                return
        else:
            yield tradeoff(program)
