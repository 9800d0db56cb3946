"""Kernels for the least flash need no more memory than the fastest ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from microfold import target
from microfold.compiler import compile_file
from microfold.kernels.selection import decide
from microfold.kernels.selection.cheapest import Candidate, Ranking
from microfold.kernels.selection.least_flash import Planner, select_least_flash
from microfold.options import Options
from tests.counts import MODELS
from tests.sampling import quick

SIZE = Options(optimize="size")


def _fastest(path: Path, core: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The arena with the fastest kernels."""

    def keep(layers: Sequence[Ranking], plan: Planner) -> list[Candidate]:
        del plan
        return [ranking.candidates[0] for ranking in layers]

    with monkeypatch.context() as patch:
        patch.setattr(decide, "select_least_flash", keep)
        return compile_file(path, target.load(core), SIZE).arena.size


@pytest.mark.parametrize("core", quick(["cortex-m4", "cortex-m55", "cortex-m0plus"]))
def test_the_arena_does_not_grow(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in MODELS.values():
        limit = _fastest(path, core, monkeypatch)
        assert compile_file(path, target.load(core), SIZE).arena.size <= limit, path.stem


def test_layers_that_may_not_change_keep_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[list[Candidate], list[Candidate]]] = []

    def half(layers: Sequence[Ranking], plan: Planner) -> list[Candidate]:
        chosen = select_least_flash([replace(r, fixed=i % 2 > 0) for i, r in enumerate(layers)], plan)
        found.append(([ranking.candidates[0] for ranking in layers], chosen))
        return chosen

    monkeypatch.setattr(decide, "select_least_flash", half)
    compile_file(MODELS["cnn_int8"], target.load("cortex-m4"), SIZE)
    ((fastest, chosen),) = found
    assert fastest[1::2] == chosen[1::2] and fastest != chosen
