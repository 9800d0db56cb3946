"""The exact choice of kernels, held against trying everything, and against a solver of other people."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import highspy
import pytest
from msgspec.structs import replace

from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.cost.code import CodeBytes
from microfold.kernels.kernel import Kernel
from microfold.kernels.selection import selector as selector_module
from microfold.kernels.selection.objective import Limits, Objective, SelectionFigures
from microfold.kernels.selection.program import ChoiceProgram, Prices, VariantChoice, figures_of
from microfold.kernels.selection.selector import Selection, Selector
from microfold.kernels.selection.solver import ProgramSolution, solve, write_model
from microfold.kernels.selection.variant import ArenaRequest, Variant

OBJECTIVES = {
    "size": Objective(0.3, 1.0, 1.0),
    "balanced": Objective(3.0, 1.0, 1.0),
    "speed": Objective(math.inf, 1.0, 1.0),
    "time and flash": Objective(3.0, 1.0, 0.0),
}


class _Stub(Kernel):
    name = "stub"


def _variant(draw: random.Random, layer: int) -> Variant:
    """Return a variant with drawn figures; functions, helpers and constants are often those of others."""
    cycles, need, scratch = draw.randint(100, 2000), 8 * draw.randint(4, 40), 8 * draw.randint(0, 9)
    function = draw.randint(0, 4)
    code = draw.randint(50, 400)
    return Variant(
        layer,
        _Stub(),
        KernelCall(CFunction("stub.c.j2", f"function{function}"), scratch=scratch),
        cycles,
        cycles * draw.choice((0.9, 0.97, 1.0)),
        draw.randint(4, 20),
        {key: 16 << key for key in draw.sample(range(6), draw.randint(0, 2))},
        CodeBytes(200 + 30 * function, code, {f"helper{function % 2}": 90}),
        need + scratch,
        ArenaRequest(scratch, ((None, False),), ()),
    )


def _layers(draw: random.Random) -> list[list[Variant]]:
    return [[_variant(draw, layer) for _ in range(draw.randint(1, 4))] for layer in range(3)]


@dataclass
class _Size:
    size: int


class _Plans:
    """An arena in which each two neighbours need their scratch at once, besides a hundred bytes."""

    def __init__(self, layers: Sequence[Sequence[Variant]]):
        self.needs = [{v.call: v.need for v in variants} for variants in layers]

    def need(self, index: int, kernel: Kernel, call: KernelCall) -> int:
        return self.needs[index][call]

    def plan(self, kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> _Size:
        sizes = [self.needs[index][call] for index, call in enumerate(calls)]
        pairs = [self.run_bound((i, i + 1), kernels, calls[i : i + 2]) for i in range(len(calls) - 1)]
        return _Size(max(sizes + pairs))

    def runs_above(
        self, kernels: Sequence[Kernel], calls: Sequence[KernelCall], known: int
    ) -> list[tuple[int, int]]:
        runs = [(i, i + 1) for i in range(len(calls) - 1)]
        return [run for run in runs if self.run_bound(run, kernels, calls[run[0] : run[1] + 1]) > known]

    def run_bound(self, run: Sequence[int], kernels: Sequence[Kernel], calls: Sequence[KernelCall]) -> int:
        return 100 + 3 * sum(call.scratch for call in calls)


def _all(layers: Sequence[Sequence[Variant]], plans: _Plans | None) -> Iterator[SelectionFigures]:
    """Yield the figures of every choice that there is."""
    for chosen in itertools.product(*layers):
        calls = [variant.call for variant in chosen]
        if plans is not None:
            arena = plans.plan([variant.kernel for variant in chosen], calls).size
        else:
            arena = max(variant.need for variant in chosen)
        for own in itertools.product((False, True), repeat=len(chosen)):
            choices = [VariantChoice(variant, copy) for variant, copy in zip(chosen, own, strict=True)]
            sharing = [choice.variant.function for choice in choices if not choice.own_copy]
            if all(sharing.count(function) > 1 for function in sharing):
                yield figures_of(choices, arena)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("shared_calls", [False, True], ids=["needs", "windows"])
def test_no_choice_is_better(name: str, shared_calls: bool) -> None:
    objective, refused = OBJECTIVES[name], 0
    for seed in range(25):
        draw = random.Random(seed)
        layers = _layers(draw)
        plans = _Plans(layers) if shared_calls else None
        everything = [*_all(layers, plans)]
        limits = Limits(
            flash=draw.choice((math.inf, sorted(f.flash for f in everything)[len(everything) // 4])),
            arena=draw.choice((math.inf, sorted(f.arena for f in everything)[len(everything) // 4] - 1)),
        )
        selector = Selector(layers, plans)
        found = selector.best(objective, limits)
        fitting = [f for f in everything if f.flash <= limits.flash and f.arena <= limits.arena]
        if found is None:
            assert not fitting
            refused += 1
            continue
        assert found.proved
        assert found.figures in fitting
        best = min(objective.value(figures, selector.least) for figures in fitting)
        # The value is counted in millionths, rounded for every column.
        assert objective.value(found.figures, selector.least)[0] <= best[0] * (1 + 1e-5)
    assert refused < 20


def test_minima_are_rounded_so_that_the_next_question_has_a_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    without = 0

    def counted(*arguments: Any) -> ProgramSolution | None:
        nonlocal without
        found = solve(*arguments)
        without += found is None
        return found

    monkeypatch.setattr(selector_module, "solve", counted)
    for seed in range(25):
        layers = _layers(random.Random(seed))
        assert Selector(layers, _Plans(layers)).best(OBJECTIVES["balanced"]) is not None
    assert without == 0


def test_the_choice_does_not_depend_on_the_order_of_equal_variants_of_other_layers() -> None:
    draw = random.Random(7)
    layers = _layers(draw)
    selector = Selector(layers)
    first = selector.best(OBJECTIVES["balanced"])
    # The same question again, after others.
    selector.best(OBJECTIVES["size"])
    again = selector.best(OBJECTIVES["balanced"])
    assert first is not None
    assert again is not None
    assert [_id(first, i) for i in range(3)] == [_id(again, i) for i in range(3)]


def _id(found: Selection, layer: int) -> tuple[int, bool]:
    return id(found.chosen[layer].variant), found.chosen[layer].own_copy


def test_of_equally_fast_choices_speed_takes_the_smallest() -> None:
    draw = random.Random(3)
    small, large = _variant(draw, 0), _variant(draw, 0)
    figures = {"cycles": 100, "single_caller_cycles": 100, "constants": {}, "need": 64}
    small = replace(small, **figures, code=CodeBytes(100, 100))
    large = replace(large, **figures, code=CodeBytes(100, 101 + small.description))
    found = Selector([[large, small]]).best(OBJECTIVES["speed"])
    assert found is not None
    assert found.chosen[0].variant is small


@pytest.mark.parametrize("suffix", [".lp", ".mps"])
def test_an_exported_program_has_the_same_optimum(tmp_path: Path, suffix: str) -> None:
    layers = _layers(random.Random(11))
    program = ChoiceProgram(layers)
    objective = program.sum_of(Prices(cycles=1.0, flash=2.0, arena=3.0))
    path = tmp_path / f"choice{suffix}"
    write_model(path, program.program, objective)
    reader = highspy.Highs()
    reader.silent()
    reader.readModel(str(path))
    reader.run()
    found = solve(program.program, objective)
    assert found is not None
    assert round(reader.getInfo().objective_function_value) == found.value
