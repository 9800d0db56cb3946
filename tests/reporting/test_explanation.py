"""Explanations of builds: every figure is that of a build with the same restriction."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph, prepare
from microfold.errors import BudgetError
from microfold.frontend import tflite
from microfold.ir.graph import Graph
from microfold.ir.text import parse
from microfold.kernels.selection.objective import SelectionFigures
from microfold.lowering.optimised import ImportedModel
from microfold.options import Options
from microfold.reporting.explanation import Explanation, explain

CORE = "cortex-m4"


def explained(graph: Graph, options: Options | None = None) -> Explanation:
    return explain(prepare(ImportedModel.of(graph, target.load(CORE), options or Options())))


def built(graph: Graph, options: Options) -> SelectionFigures:
    return prepare(ImportedModel.of(graph, target.load(CORE), options)).kernels.figures


@pytest.fixture(scope="module")
def cnn(made_models: Path) -> Graph:
    return tflite.load(made_models / "cnn_int8.tflite")


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        pytest.param(Options(optimize="size", rows="never"), marks=pytest.mark.slow),
        Options(flash=7200),
    ],
)
def test_alternatives_are_the_builds_with_these_restrictions(cnn: Graph, options: Options) -> None:
    found = explained(cnn, options)
    assert found.figures == built(cnn, options)
    assert found.proved
    assert found.less
    for each in found.less:
        memory, limit = re.fullmatch(r"(RAM|flash) <= ([\d,]+) B", each.restriction).groups()  # type: ignore[union-attr]
        size = int(limit.replace(",", ""))
        limited = replace(options, **{memory.lower(): size})
        if each.change is None:
            with pytest.raises(BudgetError) as refusal:
                built(cnn, limited)
            assert each.impossible == "; ".join(refusal.value.found)
        else:
            assert _sum(found.figures, each.change) == built(cnn, limited)
            assert each.proved is not each.streamed
    program = compile_graph(cnn, target.load(CORE), options)
    for each in found.others:
        name = each.restriction.partition(" ")[0]
        pinned = replace(options, kernels=(f"{name}={each.kernel}",))
        assert each.change is not None
        assert _sum(found.figures, each.change).cycles == pytest.approx(built(cnn, pinned).cycles)
    slowest = sorted(program.layers, key=lambda layer: -(layer.estimated_cycles or 0))[:3]
    assert [share.name for share in found.time] == [f"{each.name} ({each.kernel.name})" for each in slowest]
    assert found.constants == program.weight_bytes


def _sum(figures: SelectionFigures, change: SelectionFigures) -> SelectionFigures:
    return SelectionFigures(
        pytest.approx(figures.cycles + change.cycles),  # type: ignore[arg-type]
        figures.flash + change.flash,
        figures.arena + change.arena,
    )


def test_limits_are_binding_if_another_build_is_better_without_them(cnn: Graph) -> None:
    (tight,) = explained(cnn, Options(ram=1000)).limits
    assert (tight.memory, tight.limit, tight.binding) == ("RAM", 1000, True)
    (wide,) = explained(cnn, Options(ram=100_000)).limits
    assert not wide.binding


def test_layers_that_set_the_arena(cnn: Graph) -> None:
    found = explained(cnn).peak
    assert found is not None
    assert (found.layers, found.together) == (["conv2d_1"], False)
    assert found.others < found.needs == found.planned == found.bound


CHAIN = """
graph @chain(%x: float32[1,16,16,4]) -> (%d) {
  %a: float32[1,16,16,4] = abs(%x)
  %b: float32[1,16,16,4] = transpose(%a) {permutation=(0, 2, 1, 3)}
  %c: float32[1,16,16,4] = add(%a, %b)
  %e: float32[1,16,16,4] = softmax(%c) {beta=1.0}
  %d: float32[1,16,16,4] = sub(%e, %b)
}
"""


def test_declined_passes_are_counted_by_reason() -> None:
    found = explained(parse(CHAIN)).passes
    assert found.declined
    assert not any("%a" in reason or "%b" in reason for reason, _ in found.declined)


def test_speed_has_an_infinite_price_and_reasons_for_whole_tensors(cnn: Graph) -> None:
    found = explained(cnn, Options(optimize="speed", rows="never"))
    assert math.isinf(found.objective.cycles)
    assert found.streaming == "rows=never requires whole tensors"
    assert all((each.growth or 0.0) >= 0.0 for each in found.others)
