"""Kernels for the least flash need no more memory than the fastest ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from microfold import compiler, target
from microfold.compiler import compile_file
from microfold.ir.graph import Graph
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.options import Options
from microfold.plan.smallest import smallest_kernels
from tests.counts import MODELS

SIZE = Options(optimize="size")


def _fastest(path: Path, core: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The arena with the fastest kernels."""

    def keep(_: Graph, fastest: Sequence[tuple[LayerContext, Kernel]], *__: object, **___: object) -> object:
        return list(fastest)

    with monkeypatch.context() as patch:
        patch.setattr(compiler, "smallest_kernels", keep)
        return compile_file(path, target.load(core), SIZE).arena.size


@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55", "cortex-m0plus"])
def test_the_arena_does_not_grow(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in MODELS.values():
        limit = _fastest(path, core, monkeypatch)
        assert compile_file(path, target.load(core), SIZE).arena.size <= limit, path.stem


def test_layers_that_may_not_change_keep_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[Sequence[tuple[LayerContext, Kernel]], list[tuple[LayerContext, Kernel]]]] = []

    def half(
        graph: Graph,
        fastest: Sequence[tuple[LayerContext, Kernel]],
        free: Sequence[bool],
        *,
        include_io: bool,
    ) -> list[tuple[LayerContext, Kernel]]:
        chosen = smallest_kernels(
            graph, fastest, [i % 2 == 0 for i in range(len(free))], include_io=include_io
        )
        found.append((fastest, chosen))
        return chosen

    monkeypatch.setattr(compiler, "smallest_kernels", half)
    compile_file(MODELS["dscnn_bn_int8"], target.load("cortex-m4"), SIZE)
    ((fastest, chosen),) = found
    assert fastest[1::2] == chosen[1::2] and list(fastest) != chosen
