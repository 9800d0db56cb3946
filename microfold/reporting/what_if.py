"""Builds of a model for other targets and optimisation levels, for `microfold report --what-if`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from microfold.options import OPTIMIZE
from microfold.program import Program
from microfold.reporting.schema import WhatIfBuild
from microfold.target import available, load
from microfold.verification.measure import Measurement


def alternatives() -> list[tuple[str, str]]:
    """Return the targets and levels to try: every core with all its options, the smallest core first.

    Cores without some option differ little, and would crowd the chart.
    """
    cores = [load(name) for name in available()]
    chosen = [core for core in cores if core.has("thumb1") or core.has("thumb2")]
    chosen = [core for core in chosen if "-no" not in core.name]
    chosen.sort(key=lambda core: (len(core.features), core.name))
    return [(core.name, level) for core in chosen for level in OPTIMIZE]


def alternative(program: Program, measurement: Measurement | None) -> WhatIfBuild:
    """Return the figures of a compilation.

    Args:
        measurement: measured sizes. None if the target's compiler is missing: flash is then without code, and
            RAM without the stack.
    """
    ram, flash = program.arena.size + program.state_size, program.weight_bytes
    if measurement is not None:
        ram += measurement.stack or 0
        flash += measurement.code + (measurement.library or 0) + (measurement.padding or 0)
    return WhatIfBuild(
        program.target.name,
        program.options.optimize,  # type: ignore[arg-type]  # Options checks it
        None,
        ram,
        flash,
        measurement is not None,
        program.estimated_instructions,
        program.estimated_cycles,
    )


def impossible(target: str, optimize: str, problem: str) -> WhatIfBuild:
    """Return the alternative of a target or level for which the model cannot be compiled."""
    return WhatIfBuild(target, optimize, problem, None, None, False, None, None)  # type: ignore[arg-type]


class BuildFigures(Protocol):
    """Figures of a build that are compared."""

    @property
    def ram(self) -> int | None: ...
    @property
    def flash(self) -> int | None: ...
    @property
    def estimated_instructions(self) -> int | None: ...
    @property
    def estimated_cycles(self) -> int | None: ...


_Build = TypeVar("_Build", bound=BuildFigures)


def time_of(build: BuildFigures) -> int | None:
    """Return the time of one run: cycles if the core has a cycle model, else instructions.

    Do not compare the times of different cores.
    """
    return build.estimated_instructions if build.estimated_cycles is None else build.estimated_cycles


def pareto_front(
    alternatives: Sequence[_Build], time: Callable[[BuildFigures], int | None] = time_of
) -> list[_Build]:
    """Return the alternatives that no other dominates in RAM, flash and time.

    All alternatives with equal figures are kept.
    """

    def figures(a: BuildFigures) -> tuple[int, int, int]:
        return a.ram or 0, a.flash or 0, time(a) or 0

    def beaten(a: BuildFigures) -> bool:
        ours = figures(a)
        return any(
            theirs != ours and all(t <= o for t, o in zip(theirs, ours, strict=True))
            for theirs in map(figures, alternatives)
        )

    return [a for a in alternatives if not beaten(a)]
