"""Gains of kernels: what a build loses without one, and the rule that decides whether a kernel stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from microfold import target
from microfold.frontend import tflite
from microfold.kernels.kernel import KERNELS
from microfold.kernels.selection.objective import SelectionFigures
from microfold.lowering.optimised import ImportedModel, optimised
from microfold.options import Options
from microfold.reporting.kernel_wins import KernelUse, KernelWin, kernel_uses, kernel_wins

CORE = "cortex-m4"


def imported(file: Path, options: Options) -> ImportedModel:
    return ImportedModel.of(tflite.load(file), target.load(CORE), options)


def wins_of(file: Path, options: Options) -> dict[str, KernelWin]:
    return {win.kernel: win for win in kernel_wins(imported(file, options))}


def figures(file: Path, options: Options) -> SelectionFigures:
    return optimised(imported(file, options)).kernels.figures


def test_wins_are_those_of_builds_with_other_kernels(made_models: Path) -> None:
    file, options = made_models / "cnn_int8.tflite", Options(optimize="speed")
    before = [*KERNELS]
    win = wins_of(file, options)["s8_max_pool2d__dsp"]
    assert before == KERNELS
    (other,) = win.others
    assert other == "s8_max_pool2d__c"
    now = figures(file, options)
    then = figures(file, Options(optimize="speed", kernels=(f"op:max_pool2d={other}",)))
    assert (win.layers, win.win) == (1, win.cycles)
    assert win.cycles == pytest.approx((then.cycles - now.cycles) / now.cycles)
    assert win.flash == pytest.approx((then.flash - now.flash) / now.flash)


def test_passes_form_other_layers_without_the_only_kernel_of_a_layer(made_models: Path) -> None:
    wins = wins_of(made_models / "preact_bn_f32.tflite", Options())
    fused = wins["f32_conv2d__fpu_4x4_residual"]
    assert fused.win is not None and "f32_add__fpu" in fused.others
    assert wins["f32_softmax__c"].win is None


def build(layers: int, win: float | None, kernel: str = "s8_softmax__c") -> dict[str, Any]:
    wins = [
        {"kernel": kernel, "layers": 1, "win": win, "cycles": 0.0, "flash": 0.0, "arena": 0.0, "others": []}
    ]
    if layers > 1:
        rest = {"kernel": "copy__c", "layers": layers - 1, "win": None}
        wins.append(wins[0] | rest)
    return {"model": f"m{layers}", "target": CORE, "level": "speed", "kernels": wins}


def use_of(reports: list[dict[str, Any]], kernel: str = "s8_softmax__c") -> KernelUse:
    return next(use for use in kernel_uses(reports) if use.kernel == kernel)


@pytest.mark.parametrize(
    ("builds", "kept"),
    [
        ([(5, 0.021)], True),
        ([(5, 0.019)], False),
        ([(2, 0.021)], False),
        ([(2, 0.11)], True),
        ([(5, 0.001), (5, None)], True),
    ],
)
def test_rule(builds: list[tuple[int, float | None]], kept: bool) -> None:
    use = use_of([build(*each) for each in builds])
    assert (use.builds, use.kept, use.needed) == (len(builds), kept, sum(win is None for _, win in builds))


def test_kernels_of_the_targets_are_listed_those_below_the_rule_first() -> None:
    reports = [build(5, 0.5), build(2, 0.11), {"model": "m", "target": CORE, "level": "speed", "error": "no"}]
    uses = kernel_uses(reports)
    names = [use.kernel for use in uses]
    assert "s8_add__dsp_linear" in names and "s8_add__mve" not in names
    kept = [use.kept for use in uses]
    assert kept == sorted(kept)
    assert [use.kernel for use in uses if use.kept] == ["s8_softmax__c", "copy__c"]
    assert (use_of(reports).model, use_of(reports).builds) == ("m5", 2)
