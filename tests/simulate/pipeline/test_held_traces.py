"""Cycles of traces that are held in files: golden totals, and a second model that must give the same.

Traces are of layers of bundled models, see `held_trace.py` and `tests.tools.hold_trace`: no compiler changes
them. The two models share nothing but the targets' files, so they are equal to the cycle.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from microfold.simulate.pipeline.disassembly import Disassembly
from microfold.simulate.pipeline.estimate import on_pipeline
from microfold.target import load
from microfold.target.pipeline import Pipeline

from .held_trace import FOLDER, HeldTrace, read
from .second_model import core, total_cycles

# By trace, whose name begins with the core: the cycles of each layer.
TOTALS = {
    "cortex-m7_int8": (7242, 9904, 494),  # depthwise and pointwise convolution, softmax
    "cortex-m7_floats": (2895,),  # fully connected
    "cortex-m33_int8": (11903, 17887),  # depthwise and pointwise convolution
    "cortex-m55_int8": (3663, 5368, 394),  # the same, softmax
}


def _pipeline(name: str) -> Pipeline:
    pipeline = load(name.partition("_")[0]).pipeline
    assert pipeline is not None
    return pipeline


def _totals(trace: HeldTrace, pipeline: Pipeline) -> tuple[int, ...]:
    return on_pipeline([*trace.layers.values()], Disassembly(trace.lines), pipeline).cycles


def test_every_trace_has_totals() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(TOTALS)


@pytest.mark.parametrize("name", TOTALS)
def test_totals(name: str) -> None:
    assert _totals(read(FOLDER / f"{name}.txt"), _pipeline(name)) == TOTALS[name]


@pytest.mark.parametrize("name", TOTALS)
def test_a_second_model_gives_the_same(name: str) -> None:
    trace = read(FOLDER / f"{name}.txt")
    found = total_cycles(core(name.partition("_")[0]), trace.layers.values(), trace.lines)
    assert tuple(round(cycles) for cycles in found) == TOTALS[name]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cortex-m7_int8", "load"),
        ("cortex-m7_int8", "multiply"),
        ("cortex-m7_floats", "float_add"),
        ("cortex-m7_floats", "float_load_multiple"),
        ("cortex-m33_int8", "load"),
        ("cortex-m33_int8", "multiply"),
        ("cortex-m55_int8", "vector_round_shift"),
        ("cortex-m55_int8", "vector_narrow"),
    ],
)
def test_a_changed_latency_changes_totals(name: str, kind: str) -> None:
    pipeline = _pipeline(name)
    rules = pipeline.issues[kind]
    later = replace(rules, latency=rules.latency + 1)
    changed = replace(pipeline, issues={**pipeline.issues, kind: later})
    found = _totals(read(FOLDER / f"{name}.txt"), changed)
    assert sum(found) > sum(TOTALS[name])
