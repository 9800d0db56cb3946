"""The best choice of kernels for one model under an objective and limits, with its proof.

The integer program knows what every call needs of the arena. A plan may need more, because calls share
tensors, and each tensor lies in one place. Then the shortest runs of calls that show it become constraints,
and the program is solved again, until the plan needs no more than the program knows. Every program on the way
is a relaxation, so the last optimum holds for all choices in this order of the calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.selection.objective import Figures, Limits, Objective
from microfold.kernels.selection.program import RANKS, Choice, ChoiceProgram, Prices, Window, figures_of
from microfold.kernels.selection.solver import Row, at_most, solve, write_model
from microfold.kernels.selection.variant import PeakMemory, Variant
from microfold.support.frozen import frozen

# Programs that are solved for one question before its gap is stated instead. Real models take up to 30.
MOST_ROUNDS = 100
# Units of the value of a choice, which is prices times figures as parts of the least figures: millionths.
VALUE_UNITS = 1_000_000


class ArenaSize(Protocol):
    """The plan of an arena."""

    @property
    def size(self) -> int: ...


class ArenaPlans(PeakMemory, Protocol):
    """Plans the arena for the calls in one order."""

    def plan(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> ArenaSize:
        """Return the plan for the calls of all layers."""
        ...

    def runs_above(
        self, kernels: Sequence[Kernel], calls: Sequence[KernelCall], known: int
    ) -> Sequence[Sequence[int]]:
        """Return layers of short runs of calls that need more than the known bytes; empty: none was found."""
        ...

    def run_bound(self, run: Sequence[int], kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> int:
        """Return the bytes that no plan for a run of calls can go below.

        Args:
            run: its layers.
            kernels, calls: of these.
        """
        ...


@frozen
class Selection:
    """A choice of kernels.

    Attributes:
        chosen: for each layer.
        figures: what it takes; the arena is the plan's.
        values: the minima of the objective's sums, the one that comes first before all others.
        proved: no choice is better, in this order of the calls.
    """

    chosen: Sequence[Choice]
    figures: Figures
    values: tuple[int, ...]
    proved: bool


class Selector:
    """Selects among all variants of a model's layers.

    Attributes:
        proved: every bound so far is proved: plans were, too, and no question took too many rounds.

    Args:
        layers: the variants of each layer, at least one of each.
        plans: of the arena; None: it has no part in the choice.
        reference: the figures that are a hundred percent; None: the least of these layers.
        fixed_flash: bytes of flash that every choice takes besides.
    """

    def __init__(
        self,
        layers: Sequence[Sequence[Variant]],
        plans: ArenaPlans | None = None,
        reference: Figures | None = None,
        fixed_flash: int = 0,
    ):
        self.layers = layers
        self._fixed_flash = fixed_flash
        self._plans = plans
        self._windows: list[Window] = []
        self._program = ChoiceProgram(layers)
        self._reference = reference
        self.proved = True

    @cached_property
    def least(self) -> Figures:
        """The least cycles, flash and arena that any choice has, each by itself."""
        fastest = sum(min(min(v.cycles, v.cycles_alone) for v in variants) for variants in self.layers)
        smallest = solve(self._program.program, self._program.sum_of(Prices(flash=1.0)))
        assert smallest is not None  # every layer has a variant
        return Figures(fastest, smallest.value + self._fixed_flash, self._program.least_arena)

    def best(self, objective: Objective, limits: Limits | None = None) -> Selection | None:
        """Return the best choice whose plan keeps the limits; None: none does.

        Of equally good ones it is the smallest, and of these always the same one.
        """
        limits = limits or Limits()
        best: _Minimum | None = None
        minima: list[tuple[Prices, int]] = []
        for prices in [*self._stages(objective), RANKS]:
            arena_counts = any(each.arena for each, _ in minima) or prices.arena > 0
            found = self._minimum(prices, minima, limits, arena_counts)
            if found is None:
                break
            best = found
            minima.append((prices, found.value))
        if best is None:
            return None
        floor = self._program.least_arena  # sums count the arena above it
        values = (*(value + round(p.arena * floor) for p, value in minima if p is not RANKS),)
        figures = figures_of(best.chosen, best.arena)
        figures = replace(figures, flash=figures.flash + self._fixed_flash)
        return Selection(best.chosen, figures, values, self.proved)

    def write_model(self, path: Path, objective: Objective, limits: Limits) -> None:
        """Write the integer program of the latest question for another solver, see `solver.write_model`.

        Its objective is the first sum to be minimised, in units of value, without that of `least_arena`.
        """
        first = self._stages(objective)[0]
        write_model(path, self._program.program, self._program.sum_of(first), self._limit_rows(limits))

    def _minimum(
        self, prices: Prices, minima: Sequence[tuple[Prices, int]], limits: Limits, arena_counts: bool
    ) -> _Minimum | None:
        """Return the choice with the least sum whose plan keeps the limits; None: there is none.

        Args:
            minima: sums that must not grow, and their values.
            arena_counts: the plan must need no more than the program knows: a sum depends on it.
        """
        for _ in range(MOST_ROUNDS):
            program = self._program
            rows = [at_most(value, program.sum_of(each)) for each, value in minima]
            solution = solve(program.program, program.sum_of(prices), [*rows, *self._limit_rows(limits)])
            if solution is None:
                return None
            chosen = program.chosen(solution.taken)
            known = self._known_arena(chosen)
            size = self._planned_arena(chosen) if self._plans is not None else known
            if size <= limits.arena and (size <= known or not arena_counts):
                return _Minimum(chosen, size, solution.value)
            self._add_windows(chosen, known, size)
        self.proved = False
        return None

    def _limit_rows(self, limits: Limits) -> list[Row]:
        program = self._program
        rows: list[Row] = []
        if math.isfinite(limits.flash):
            left = math.floor(limits.flash) - self._fixed_flash
            rows.append(at_most(left, program.sum_of(Prices(flash=1.0))))
        if math.isfinite(limits.arena):
            left = math.floor(limits.arena) - program.least_arena
            rows.append(at_most(left, program.sum_of(Prices(arena=1.0))))
        return rows

    def _known_arena(self, chosen: Sequence[Choice]) -> int:
        """Return the bytes of arena that the program counts for a choice."""
        windows = [window.size for window in self._windows if window.holds_for(chosen)]
        return max([self._program.least_arena, *(choice.variant.need for choice in chosen), *windows])

    def _planned_arena(self, chosen: Sequence[Choice]) -> int:
        assert self._plans is not None
        return self._plans.plan(*_calls(chosen)).size

    def _add_windows(self, chosen: Sequence[Choice], known: int, planned: int) -> None:
        """Let the program know why a plan needs more than it knew."""
        assert self._plans is not None
        found: list[Window] = []
        for run in self._plans.runs_above(*_calls(chosen), known):
            found += self._windows_of([chosen[layer].variant for layer in run], run)
        if not found:
            # That this plan is the smallest is not proved.
            self.proved = False
            found = [Window({c.variant.layer: c.variant.request for c in chosen}, planned)]
        for window in found:
            if not any(other.implies(window) for other in self._windows):
                self._windows = [w for w in self._windows if not window.implies(w)] + [window]
        self._program.know(self._windows)

    def _windows_of(self, chosen: Sequence[Variant], run: Sequence[int]) -> list[Window]:
        """Return the window of a run of calls, and those with one other request that ask for less.

        Windows that ask for more are implied, but for their size. Those that need no more than their single
        calls are known anyway.
        """
        found: list[Window] = []
        own = self._window(run, chosen)
        for place, layer in enumerate(run):
            now = chosen[place]
            for other in {variant.request: variant for variant in self.layers[layer]}.values():
                if other.request != now.request and not other.request.asks_no_less(now.request):
                    variants = [*chosen[:place], other, *chosen[place + 1 :]]
                    window = self._window(run, variants)
                    if max(variant.need for variant in variants) < window.size <= own.size:
                        found.append(window)
        return [own, *found]

    def _window(self, run: Sequence[int], variants: Sequence[Variant]) -> Window:
        assert self._plans is not None
        size = self._plans.run_bound(run, [v.kernel for v in variants], [v.call for v in variants])
        return Window({variant.layer: variant.request for variant in variants}, size)

    def _stages(self, objective: Objective) -> list[Prices]:
        """Return the sums to be minimised one after the other, in units of value."""
        stages = [objective]
        if math.isinf(objective.cycles):
            stages = [Objective(cycles=1.0), replace(objective, cycles=0.0)]
        if not (objective.flash and objective.arena):
            stages.append(Objective(flash=1.0, arena=1.0))
        found = [self._prices(stage) for stage in dict.fromkeys(stages)]
        return [prices for prices in found if prices is not None]

    def _prices(self, objective: Objective) -> Prices | None:
        """Return prices of single cycles and bytes; None: nothing has a price."""
        total = objective.cycles + objective.flash + objective.arena
        if not total:
            return None
        unit, least = VALUE_UNITS / total, self._reference or self.least
        return Prices(
            objective.cycles * unit / max(least.cycles, 1.0),
            objective.flash * unit / max(least.flash, 1),
            objective.arena * unit / max(least.arena, 1),
        )


@frozen(eq=False)
class _Minimum:
    """A choice with the least sum; `arena`: bytes of its plan."""

    chosen: Sequence[Choice]
    arena: int
    value: int


def _calls(chosen: Sequence[Choice]) -> tuple[list[Kernel], list[KernelCall]]:
    return [choice.variant.kernel for choice in chosen], [choice.variant.call for choice in chosen]
