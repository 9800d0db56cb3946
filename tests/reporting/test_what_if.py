"""Other targets and levels: which are tried, what they take, and which are worth a look."""

from __future__ import annotations

from microfold import target
from microfold.compiler import compile_file
from microfold.options import Options
from microfold.reporting.what_if import WhatIfBuild, alternative, alternatives, pareto_front
from microfold.verification.measure import Measurement
from tests.reporting.page.pages import CNN


def made(ram: int, flash: int, instructions: int) -> WhatIfBuild:
    return WhatIfBuild("cortex-m4", "size", None, ram, flash, True, instructions, None)


def test_every_core_at_every_level() -> None:
    tried = alternatives()
    assert tried[:3] == [("cortex-m0plus", level) for level in ("size", "balanced", "speed")]
    assert {core for core, _ in tried} == {
        "cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "cortex-m85"
    }  # fmt: skip
    assert len(tried) == len(set(tried)) == 21


def test_figures_are_those_of_the_build() -> None:
    program = compile_file(CNN, target.load("cortex-m4"), Options(optimize="speed"))
    bare = alternative(program, None)
    assert (bare.target, bare.optimize, bare.measured) == ("cortex-m4", "speed", False)
    assert (bare.ram, bare.flash) == (program.arena.size, program.weight_bytes)
    assert bare.estimated_instructions == program.estimated_instructions
    whole = alternative(program, Measurement(code=1000, library=20, padding=4, stack=300))
    assert (whole.ram, whole.flash) == (program.arena.size + 300, program.weight_bytes + 1024)


def test_pareto_front() -> None:
    small, fast, between = made(10, 100, 900), made(30, 300, 100), made(20, 200, 500)
    beaten, twin = made(20, 201, 500), made(10, 100, 900)
    assert pareto_front([small, beaten, fast, between, twin]) == [small, fast, between, twin]
    assert pareto_front([]) == []
    # Less RAM alone is enough to be on it.
    assert made(9, 400, 999) in pareto_front([small, fast, made(9, 400, 999)])
