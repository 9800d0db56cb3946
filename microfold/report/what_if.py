"""What if: the same model for other targets and levels of optimisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

from microfold.options import OPTIMIZE
from microfold.program import Program
from microfold.support.frozen import frozen
from microfold.target import available, load
from microfold.verification.measure import Measurement


@frozen
class Alternative:
    """A target and a level; fields are those of ``alternative`` in `report.schema.json`."""

    target: str
    optimize: Literal["size", "balanced", "speed"]
    problem: str | None
    ram: int | None
    flash: int | None
    measured: bool
    estimated_instructions: int | None
    estimated_cycles: int | None


def alternatives() -> list[tuple[str, str]]:
    """The targets and levels to try: every core with all that it can have, from the smallest on.

    Cores without one of their options differ little, and would crowd the chart.
    """
    cores = [load(name) for name in available()]
    chosen = [core for core in cores if core.has("thumb1") or core.has("thumb2")]
    chosen = [core for core in chosen if "-no" not in core.name]
    chosen.sort(key=lambda core: (len(core.features), core.name))
    return [(core.name, level) for core in chosen for level in OPTIMIZE]


def alternative(program: Program, measurement: Measurement | None) -> Alternative:
    """What a compilation takes.

    Args:
        measurement: None if the target's compiler is not there: flash is without code then, RAM without the
            stack.
    """
    ram, flash = program.arena.size + program.state_size, program.weight_bytes
    if measurement is not None:
        ram += measurement.stack or 0
        flash += measurement.code + (measurement.library or 0) + (measurement.padding or 0)
    return Alternative(
        program.target.name,
        program.options.optimize,  # type: ignore[arg-type]  # Options checks it
        None,
        ram,
        flash,
        measurement is not None,
        program.estimated_instructions,
        program.estimated_cycles,
    )


def impossible(target: str, optimize: str, problem: str) -> Alternative:
    """A target or level for which the model cannot be compiled."""
    return Alternative(target, optimize, problem, None, None, False, None, None)  # type: ignore[arg-type]


class Figures(Protocol):
    """What counts of one way to compile a model."""

    @property
    def ram(self) -> int | None: ...
    @property
    def flash(self) -> int | None: ...
    @property
    def estimated_instructions(self) -> int | None: ...
    @property
    def estimated_cycles(self) -> int | None: ...


_Way = TypeVar("_Way", bound=Figures)


def time_of(way: Figures) -> int | None:
    """What one run takes: cycles where the core has a model of them, or instructions.

    Those of different cores are not to be compared.
    """
    return way.estimated_instructions if way.estimated_cycles is None else way.estimated_cycles


def pareto_front(alternatives: Sequence[_Way], time: Callable[[Figures], int | None] = time_of) -> list[_Way]:
    """Those of which no other has at most as much RAM, flash and time, and less of one.

    Of those with equal figures all are among them.
    """

    def figures(a: Figures) -> tuple[int, int, int]:
        return a.ram or 0, a.flash or 0, time(a) or 0

    def beaten(a: Figures) -> bool:
        ours = figures(a)
        return any(
            theirs != ours and all(t <= o for t, o in zip(theirs, ours, strict=True))
            for theirs in map(figures, alternatives)
        )

    return [a for a in alternatives if not beaten(a)]
