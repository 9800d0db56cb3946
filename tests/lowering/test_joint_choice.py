"""The kernels of several models as one program: never worse than what each model has alone."""

from __future__ import annotations

import math

import pytest

from microfold import target
from microfold.compiler import prepare
from microfold.frontend import tflite
from microfold.kernels.selection.objective import Limits, Objective, SelectionFigures
from microfold.lowering.joint_choice import GroupMember, joint_selector
from microfold.lowering.optimised import ImportedModel
from microfold.lowering.prepared import PreparedProgram
from microfold.options import Options
from tests.counts import MODELS

NAMES = ("cnn_int8", "tcn1d_int8", "cnn_int8")


@pytest.fixture(scope="module")
def models() -> list[PreparedProgram]:
    """Three models, two of which are the same."""
    core = target.load("cortex-m4")
    graphs = [tflite.import_model(tflite.read_file(MODELS[name]), name, name) for name in NAMES]
    return [prepare(ImportedModel.of(graph, core, Options(memory="split"))) for graph in graphs]


@pytest.mark.parametrize(
    "objective",
    [Objective(3, 1, 1), Objective(0.3, 1, 1), Objective(1, 0, 0), Objective(0, 1, 0), Objective(0, 0, 1)],
)
def test_never_worse_than_each_alone(models: list[PreparedProgram], objective: Objective) -> None:
    parts = [GroupMember(each.kernels.selection, 0) for each in models]
    selector = joint_selector(parts, 0)
    best = selector.best(objective)
    assert best is not None and best.proved
    value = objective.value(best.figures, selector.reference)
    flash, arena, cycles = 0, 0, 0.0
    for part in parts:
        own = part.selection.selector.best(objective)
        assert own is not None
        flash, arena = flash + own.figures.flash, max(arena, own.figures.arena)
        cycles += own.figures.cycles
    separate = SelectionFigures(cycles, flash, arena)
    assert value[0] <= objective.value(separate, selector.reference)[0] + 1e-6


def test_equal_models_share_functions_and_constants(models: list[PreparedProgram]) -> None:
    parts = [GroupMember(each.kernels.selection, 0) for each in models]
    smallest = joint_selector(parts, 0).best(Objective(flash=1))
    both = joint_selector([parts[0], parts[2]], 0).best(Objective(flash=1))
    one = joint_selector(parts[:1], 0).best(Objective(flash=1))
    assert smallest is not None and both is not None and one is not None
    # What is there twice are calls, and descriptions of layers.
    assert one.figures.flash < both.figures.flash < 1.2 * one.figures.flash


def test_limits_hold_for_all_together(models: list[PreparedProgram]) -> None:
    parts = [GroupMember(each.kernels.selection, 0) for each in models]
    selector = joint_selector(parts, 0)
    least = selector.best(Objective(flash=1))
    assert least is not None
    times = [math.inf]
    for more in (0, 200, 1000, 5000):
        found = selector.best(Objective(cycles=1), Limits(flash=least.figures.flash + more))
        assert found is not None and found.figures.flash <= least.figures.flash + more
        times.append(found.figures.cycles)
    assert times == sorted(times, reverse=True)
    assert selector.best(Objective(cycles=1), Limits(flash=least.figures.flash - 1)) is None
