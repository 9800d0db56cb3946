"""Exact kernel selection for one model under an objective and limits, with its proof of optimality.

The integer program knows how much of the arena every single call needs. A plan may need more, because calls
share tensors, and each tensor has one address. In this case, the shortest runs of calls that show it become
constraints. The program is solved again until the plan needs no more than the program knows. Every program of
this sequence is a relaxation. Therefore the last optimum holds for all choices in this order of the calls.

If no run of calls shows why a plan needs more, a set of layers becomes a constraint without which plans need
less. This is no proof, so that only a few rounds of this kind are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.selection.objective import Limits, Objective, SelectionFigures
from microfold.kernels.selection.program import (
    RANKS,
    ArenaWindow,
    ChoiceProgram,
    Prices,
    VariantChoice,
    figures_of,
)
from microfold.kernels.selection.solver import (
    LinearConstraint,
    Terms,
    at_most,
    least_with,
    solve,
    write_model,
)
from microfold.kernels.selection.variant import PeakMemory, Variant

# Maximum number of programs that are solved for one question before its gap is reported. The first number is
# for proved constraints; real models need up to 30 of them. The second one is for all others.
MOST_ROUNDS, MOST_UNPROVED_ROUNDS = 100, 8
# Unit of a choice's value, which is the sum of prices times relative figures: a millionth.
VALUE_UNITS = 1_000_000


class ArenaSize(Protocol):
    """Plan of an arena, reduced to its size."""

    @property
    def size(self) -> int: ...


class ArenaPlans(PeakMemory, Protocol):
    """Planner of the arena for the calls in one order."""

    def plan(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> ArenaSize:
        """Return the plan for the calls of all layers."""
        ...


@runtime_checkable
class RunBounds(Protocol):
    """Lower bounds of the arena for runs of calls in one order; planners of whole tensors have them."""

    def runs_above(
        self, kernels: Sequence[Kernel], calls: Sequence[KernelCall], known: int
    ) -> Sequence[Sequence[int]]:
        """Return the layers of short runs of calls that need more than `known` bytes; empty if none are."""
        ...

    def run_bound(self, run: Sequence[int], kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> int:
        """Return a lower bound, in bytes, of every plan for a run of calls.

        Args:
            run: layers of the run.
            kernels, calls: kernels and calls of these layers.
        """
        ...


class Selection(Struct, frozen=True):
    """A choice of kernels.

    Attributes:
        chosen: choice for each layer.
        figures: time and memory of the choice; the arena is the plan's.
        values: minima of the objective's sums, in their order of precedence.
        proved: whether no choice is better, in this order of the calls.
    """

    chosen: Sequence[VariantChoice]
    figures: SelectionFigures
    values: tuple[int, ...]
    proved: bool


class Selector:
    """Selector among all variants of a model's layers.

    Attributes:
        plans: planner of the arena; None if the arena does not influence the choice.
        proved: whether every bound so far is proved: plans were proved, and no question needed too many
            rounds.
        fixed_flash, fixed_ram: bytes that every choice needs in addition. The RAM is not in the arena, and
            only counts in the hundred percent.

    Args:
        layers: variants of each layer, at least one for each.
        reference: figures that count as a hundred percent; None: the least figures of these layers.
    """

    def __init__(
        self,
        layers: Sequence[Sequence[Variant]],
        plans: ArenaPlans | None = None,
        reference: SelectionFigures | None = None,
        fixed_flash: int = 0,
        fixed_ram: int = 0,
    ):
        self.layers = layers
        self.fixed_flash, self.fixed_ram = fixed_flash, fixed_ram
        self.plans = plans
        self._runs = plans if isinstance(plans, RunBounds) else None
        self._windows: list[ArenaWindow] = []
        self._program = ChoiceProgram(layers)
        self._reference = reference
        self.proved = True

    def restricted(self, allowed: Callable[[Variant], bool]) -> Selector | None:
        """Return a selector among some of the variants; None if a layer has none of them.

        The hundred percent stays, and so do the known needs of runs of calls, which hold for any variants.
        """
        layers = [[variant for variant in variants if allowed(variant)] for variants in self.layers]
        if not all(layers):
            return None
        found = Selector(layers, self.plans, self.reference, self.fixed_flash, self.fixed_ram)
        found._know(self._windows)
        found.proved = self.proved
        return found

    @property
    def reference(self) -> SelectionFigures:
        """Figures that count as a hundred percent."""
        return self._reference or self.least

    @cached_property
    def least(self) -> SelectionFigures:
        """Least cycles, flash and RAM of any choice, each minimised separately."""
        fastest = sum(
            min(min(v.cycles, v.single_caller_cycles) for v in variants) for variants in self.layers
        )
        smallest = solve(self._program.program, self._program.sum_of(Prices(flash=1.0)))
        assert smallest is not None  # every layer has a variant
        flash, ram = smallest.value + self.fixed_flash, self._program.least_arena + self.fixed_ram
        return SelectionFigures(fastest, flash, ram)

    def best(
        self,
        objective: Objective,
        limits: Limits | None = None,
        better_than: SelectionFigures | None = None,
        *,
        thorough: bool = True,
        unique: bool = True,
    ) -> Selection | None:
        """Return the best choice whose plan keeps the limits; None if there is none.

        Of equally good choices, it is the smallest one.

        Args:
            better_than: figures that the choice must beat by the objective; None: any choice will do.
            thorough: whether to look for smaller plans if no bound proves that there are none.
            unique: whether the choice must not depend on the solver if several have equal figures.
        """
        limits = limits or Limits()
        best: _Minimum | None = None
        minima: list[tuple[Prices, int]] = []
        for prices in [*self._stages(objective, limits), *([RANKS] if unique else [])]:
            too_much = math.inf
            if better_than is not None and not minima:
                flash, arena = (
                    better_than.flash - self.fixed_flash,
                    better_than.arena - self._program.least_arena,
                )
                too_much = better_than.cycles * prices.cycles + flash * prices.flash + arena * prices.arena
            found = self._minimum(prices, minima, limits, too_much, thorough=thorough)
            if found is None:
                break
            best = found
            minima.append((prices, found.value))
        if best is None:
            return None
        floor = self._program.least_arena  # the sums count only the arena above it
        values = (*(value + round(p.arena * floor) for p, value in minima if p is not RANKS),)
        return Selection(best.chosen, self._figures(best.chosen, best.arena), values, self.proved)

    def figures(self, chosen: Sequence[VariantChoice]) -> SelectionFigures:
        """Return the figures of a choice, which need not be the best."""
        arena = self._planned_arena(chosen) if self.plans is not None else self._known_arena(chosen)
        return self._figures(chosen, arena)

    def _figures(self, chosen: Sequence[VariantChoice], arena: int) -> SelectionFigures:
        """Return the figures of a choice, including the flash that every choice needs."""
        figures = figures_of(chosen, arena)
        return replace(figures, flash=figures.flash + self.fixed_flash)

    def bound(self, objective: Objective, limits: Limits | None = None) -> SelectionFigures | None:
        """Return figures that no choice within the limits can beat; None if no choice keeps the limits.

        No arena is planned: the figures contain the arena that the program knows.
        """
        limits = limits or Limits()
        program, prices = self._program, self._stages(objective, limits)[0]
        rows = self._limit_rows(limits)
        solution = solve(program.program, program.sum_of(prices), rows)
        if solution is None:
            return None
        chosen = program.chosen(solution.taken)
        return self._figures(chosen, self._known_arena(chosen))

    def flash_of(self, kernels: Sequence[Kernel], own_copy: Sequence[bool]) -> int:
        """Return the bytes of flash of some variants, which need not be the best."""
        return self._figures(self.choices_of(kernels, own_copy), 0).flash

    def choices_of(self, kernels: Sequence[Kernel], own_copy: Sequence[bool]) -> list[VariantChoice]:
        """Return the choice of each layer whose variant has the given kernel."""
        return [
            VariantChoice(next(variant for variant in variants if variant.kernel is kernel), own)
            for variants, kernel, own in zip(self.layers, kernels, own_copy, strict=True)
        ]

    def reduced_costs(self, objective: Objective, limits: Limits) -> list[Mapping[Kernel, float]]:
        """Return a lower bound of the optimum's relative growth for each variant of each layer, if chosen.

        Variants that another one dominates are omitted.
        """
        program, prices = self._program, self._stages(objective, limits)[0]
        terms = program.sum_of(prices)
        found = least_with(program.program, terms, self._limit_rows(limits))
        best = solve(program.program, terms, self._limit_rows(limits))
        assert best is not None  # it has been found
        total = best.value + prices.arena * program.least_arena
        by_layer: list[dict[Kernel, float]] = [{} for _ in self.layers]
        for column, choice in program.choices.items():
            known, part = (
                by_layer[choice.variant.layer],
                max(found[column] - best.value, 0.0) / max(total, 1.0),
            )
            known[choice.variant.kernel] = min(part, known.get(choice.variant.kernel, math.inf))
        return [*by_layer]

    def write_model(self, path: Path, objective: Objective, limits: Limits) -> None:
        """Write the integer program of the latest question for another solver, see `solver.write_model`.

        Its objective is the first sum to be minimised, in units of value, without the share of `least_arena`.
        """
        first = self._stages(objective, limits)[0]
        write_model(path, self._program.program, self._program.sum_of(first), self._limit_rows(limits))

    def _minimum(
        self,
        prices: Prices,
        minima: Sequence[tuple[Prices, int]],
        limits: Limits,
        too_much: float,
        *,
        thorough: bool,
    ) -> _Minimum | None:
        """Return the choice with the least sum whose plan keeps the limits; None if none is found.

        Args:
            minima: sums that must not grow, and their values.
            too_much: sum from which on a choice is of no use.
            thorough: see `best`.
        """
        best: _Minimum | None = None
        unproved = 0
        for _ in range(MOST_ROUNDS):
            program = self._program
            terms, limited = program.sum_of(prices), self._limit_rows(limits)
            kept = [(program.sum_of(each), value) for each, value in minima]
            rows = [*limited, *(at_most(value, each) for each, value in kept)]
            if best is not None:
                kept.append((terms, best.value))
            solution = solve(program.program, terms, rows, self._excluded(kept, limited))
            if solution is None or solution.value >= too_much or (best and solution.value >= best.value):
                return best
            chosen = program.chosen(solution.taken)
            known = self._known_arena(chosen)
            size = self._planned_arena(chosen) if self.plans is not None else known
            size = max(size, known)
            if size <= limits.arena and not any(each.between(known, size) for each, _ in minima):
                found = _Minimum(chosen, size, solution.value + prices.between(known, size))
                if best is None or found.value < best.value:
                    best = found
                if best.value <= solution.value:
                    return best
            windows = self._windows_above(chosen, known)
            if not windows:
                self.proved = False
                unproved += 1
                fits = size <= limits.arena
                # If bounds of runs do not show why the plan needs more, others hardly need less.
                enough = fits and (self._runs is not None or not (thorough and prices.arena))
                if unproved > MOST_UNPROVED_ROUNDS or enough:
                    return best
                windows = [self._deciding(chosen, size, known if fits else limits.arena)]
            self._know(windows)
        self.proved = False
        return best

    def _excluded(self, sums: Sequence[tuple[Terms, int]], rows: Sequence[LinearConstraint]) -> set[int]:
        """Return the columns that are 0 in all solutions whose sums are at most these values."""
        return {
            column
            for terms, value in sums
            for column, least in enumerate(least_with(self._program.program, terms, rows))
            if least > value + 1  # a unit more than rounding errors
        }

    def _limit_rows(self, limits: Limits) -> list[LinearConstraint]:
        program = self._program
        rows: list[LinearConstraint] = []
        if math.isfinite(limits.flash):
            left = math.floor(limits.flash) - self.fixed_flash
            rows.append(at_most(left, program.sum_of(Prices(flash=1.0))))
        if math.isfinite(limits.arena):
            left = math.floor(limits.arena) - program.least_arena
            rows.append(at_most(left, program.sum_of(Prices(arena=1.0))))
        return rows

    def _known_arena(self, chosen: Sequence[VariantChoice]) -> int:
        """Return the bytes of arena that the program counts for a choice."""
        windows = [window.size for window in self._windows if window.holds_for(chosen)]
        return max([self._program.least_arena, *(choice.variant.need for choice in chosen), *windows])

    def _planned_arena(self, chosen: Sequence[VariantChoice]) -> int:
        assert self.plans is not None
        return self.plans.plan(*_calls(chosen)).size

    def _windows_above(self, chosen: Sequence[VariantChoice], known: int) -> list[ArenaWindow]:
        """Return runs of calls that need more than the program knows; empty if none is found."""
        runs = self._runs.runs_above(*_calls(chosen), known) if self._runs is not None else ()
        return [w for run in runs for w in self._windows_of([chosen[layer].variant for layer in run], run)]

    def _know(self, windows: Sequence[ArenaWindow]) -> None:
        """Add windows to the program unless other windows imply them."""
        for window in windows:
            if not any(other.implies(window) for other in self._windows):
                self._windows = [w for w in self._windows if not window.implies(w)] + [window]
        self._program.know(self._windows)

    def _deciding(self, chosen: Sequence[VariantChoice], planned: int, most: float) -> ArenaWindow:
        """Return layers whose requests make plans need more than `most` bytes, for any others."""
        leanest = [min(each, key=lambda v: (v.need, v.request.scratch)) for each in self.layers]
        asking = [layer for layer, v in enumerate(leanest) if v.request != chosen[layer].variant.request]
        now, size = [*chosen], planned
        deciding: list[int] = []
        # Try to replace halves, quarters and so on of the layers, down to single layers.
        waiting = [sorted(asking, key=lambda layer: -chosen[layer].variant.need)]
        while waiting:
            some = waiting.pop()
            leaner = [
                VariantChoice(leanest[i], own_copy=False) if i in some else each for i, each in enumerate(now)
            ]
            if (other := self._planned_arena(leaner)) > most:
                now, size = leaner, other
            elif len(some) == 1:
                deciding += some
            else:
                waiting += [some[: len(some) // 2], some[len(some) // 2 :]]
        return ArenaWindow({layer: chosen[layer].variant.request for layer in deciding}, size)

    def _windows_of(self, chosen: Sequence[Variant], run: Sequence[int]) -> list[ArenaWindow]:
        """Return the window of a run of calls, and smaller windows in which one request differs.

        A window with a larger request is implied, except for its size. A window that needs no more than its
        single calls is already known.
        """
        found: list[ArenaWindow] = []
        own = self._window(run, chosen)
        for place, layer in enumerate(run):
            now = chosen[place]
            for other in {variant.request: variant for variant in self.layers[layer]}.values():
                if other.request != now.request and not other.request.demands_at_least(now.request):
                    variants = [*chosen[:place], other, *chosen[place + 1 :]]
                    window = self._window(run, variants)
                    if max(variant.need for variant in variants) < window.size <= own.size:
                        found.append(window)
        return [own, *found]

    def _window(self, run: Sequence[int], variants: Sequence[Variant]) -> ArenaWindow:
        assert self._runs is not None
        size = self._runs.run_bound(run, [v.kernel for v in variants], [v.call for v in variants])
        return ArenaWindow({variant.layer: variant.request for variant in variants}, size)

    def _stages(self, objective: Objective, limits: Limits) -> list[Prices]:
        """Return the sums to be minimised one after the other, in units of value.

        The last sum makes the smallest one of equally good choices the best. With a limit, any arena below
        the limit is equally good.
        """
        stages = [objective]
        if math.isinf(objective.cycles):
            stages = [Objective(cycles=1.0), replace(objective, cycles=0.0)]
        if not (objective.flash and objective.arena):
            stages.append(Objective(flash=1.0, arena=1.0 if math.isinf(limits.arena) else 0.0))
        found = [self._prices(stage) for stage in dict.fromkeys(stages)]
        return [prices for prices in found if prices is not None]

    def _prices(self, objective: Objective) -> Prices | None:
        """Return prices of single cycles and bytes; None if all prices are 0."""
        total = objective.cycles + objective.flash + objective.arena
        if not total:
            return None
        unit, least = VALUE_UNITS / total, self.reference
        return Prices(
            objective.cycles * unit / max(least.cycles, 1.0),
            objective.flash * unit / max(least.flash, 1),
            objective.arena * unit / max(least.arena, 1),
        )


class _Minimum(Struct, frozen=True, eq=False):
    """Choice with the least sum so far; `arena`: bytes of its plan."""

    chosen: Sequence[VariantChoice]
    arena: int
    value: int


def _calls(chosen: Sequence[VariantChoice]) -> tuple[list[Kernel], list[KernelCall]]:
    return [choice.variant.kernel for choice in chosen], [choice.variant.call for choice in chosen]
