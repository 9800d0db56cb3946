from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from microfold.frontend import tflite
from microfold.ir.graph import verify
from microfold.ir.text import parse
from microfold.passes.context import Decision, PassContext
from microfold.pipeline import optimize
from microfold.transform.scales.fold_batchnorm_to_conv2d import fold_batchnorm_to_conv2d
from microfold.transform.scales.fold_scale_axis import fold_scale_axis
from tests.evaluation import assert_same_meaning
from tests.transform.axis_graphs import RELU, WINDOW, Case, text

WEIGHTS = "%w = constant float32[2,1,1,2] [1.0, 2.0, 3.0, 4.0]\n"
SCALED = "%w = constant float32[2,1,1,2] [2.0, 4.0, 9.0, 12.0]\n"
SCALE = "%s = constant float32[2] [2.0, 3.0]\n"

BATCH_NORM = f"""
%w = constant float32[2,1,1,2] [1.0, 2.0, 3.0, 4.0]
%b = constant float32[2] [0.5, -1.0]
%a: float32[1,3,3,2] = conv2d(%x, %w) {WINDOW}
%c: float32[1,3,3,2] = add(%a, %b)
%s = constant float32[2] [2.0, 3.0]
%d: float32[1,3,3,2] = mul(%c, %s)
%t = constant float32[2] [10.0, 20.0]
%e: float32[1,3,3,2] = sub(%d, %t)
%y: float32[1,3,3,2] = clip(%e) {RELU}
"""


def test_backward_first() -> None:
    decisions = Case(fold_scale_axis).becomes(
        f"""{WEIGHTS}%a: float32[1,3,3,2] = conv2d(%x, %w) {WINDOW}
{SCALE}%m: float32[1,3,3,2] = mul(%a, %s)
{WEIGHTS.replace("%w", "%v")}%y: float32[1,3,3,2] = conv2d(%m, %v) {WINDOW}""",
        f"""{SCALED}%a: float32[1,3,3,2] = conv2d(%x, %w) {WINDOW}
{WEIGHTS.replace("%w", "%v")}%y: float32[1,3,3,2] = conv2d(%a, %v) {WINDOW}""",
    )
    assert [decision.pass_name for decision in decisions] == ["backward_fold_scale_axis"]


def test_each_direction_can_be_disabled() -> None:
    before = f"{SCALE}%m: float32[1,3,3,2] = mul(%x, %s)\n{WEIGHTS}%a: float32[1,3,3,2] = conv2d(%m, %w) "
    graph_text = text(before + WINDOW + "\n%y: float32[1,3,3,2] = mul(%a, %s)", "%x: float32[1,3,3,2]", "%y")
    left = {
        names: _operators(graph_text, PassContext(disabled_pass=names))["mul"]
        for names in (("backward_fold_scale_axis",), ("forward_fold_scale_axis",), ())
    }
    assert left == {("backward_fold_scale_axis",): 1, ("forward_fold_scale_axis",): 1, (): 0}


def test_convolution_bias_and_batch_norm_are_one_convolution() -> None:
    Case(fold_batchnorm_to_conv2d).becomes(
        BATCH_NORM,
        f"""
        %w = constant float32[2,1,1,2] [2.0, 4.0, 9.0, 12.0]
        %a_bias = constant float32[2] [-9.0, -23.0]
        %a: float32[1,3,3,2] = conv2d(%x, %w, %a_bias) {WINDOW}
        %y: float32[1,3,3,2] = clip(%a) {RELU}
        """,
    )


def test_batch_norm_in_front() -> None:
    Case(fold_batchnorm_to_conv2d).becomes(
        f"""
        %s = constant float32[2] [2.0, 3.0]
        %a: float32[1,3,3,2] = mul(%x, %s)
        %t = constant float32[2] [10.0, 20.0]
        %c: float32[1,3,3,2] = add(%a, %t)
        %w = constant float32[2,1,1,2] [1.0, 2.0, 3.0, 4.0]
        %y: float32[1,3,3,2] = conv2d(%c, %w) {WINDOW}
        """,
        f"""
        %w = constant float32[2,1,1,2] [2.0, 6.0, 6.0, 12.0]
        %y_bias = constant float32[2] [50.0, 110.0]
        %y: float32[1,3,3,2] = conv2d(%x, %w, %y_bias) {WINDOW}
        """,
    )


@pytest.mark.parametrize("model", ["preact_bn_f32", "preact_bn_f16"])
def test_batch_norms_of_a_residual_network(model: str, made_models: Path) -> None:
    graph = tflite.load(made_models / f"{model}.tflite")
    decisions: list[Decision] = []
    result = optimize(graph, PassContext(sink=decisions.append))
    assert_same_meaning(graph, result, tolerance=1e-5)
    operators = Counter(node.op.name for node in result.nodes)
    # The sum of the residual branches, and three shifts, each stopped in both directions.
    assert (operators["mul"], operators["add"]) == (0, 4)
    reasons: dict[str, list[str]] = {}
    for decision in decisions:
        if decision.pass_name == "fold_shift_axis" and not decision.fired:
            reasons.setdefault(decision.where.split("/")[1], []).append(decision.reason)
    expected = {
        "batch_normalization_3_1": ("no node computes %serving", "with zeros, without the shift"),
        "batch_normalization_4_1": ("passes no shifts", "with zeros, without the shift"),
        "batch_normalization_8_1": ("want different shifts", "passes no shifts"),
    }
    assert reasons.keys() == expected.keys()
    for where, parts in expected.items():
        for reason, part in zip(reasons[where], parts, strict=True):
            assert part in reason


def _operators(graph_text: str, context: PassContext) -> Counter[str]:
    return Counter(node.op.name for node in fold_scale_axis(parse(graph_text), context).nodes)


def test_in_any_layout() -> None:
    """Channels are where the layout says; a scale along the width is none of channels."""
    conv = 'strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0)), layout="NCHW"'
    pool = 'size=(2, 2), strides=(1, 1), padding=((0, 0), (0, 0)), layout="NCHW"'
    graph = parse(f"""
    graph @g(%x: float32[1,3,4,4]) -> (%y, %z) {{
      %before = constant float32[1,3,1,1] [2.0, 3.0, 4.0]
      %w = constant float32[2,1,1,3] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
      %behind = constant float32[2,1,1] [0.5, 8.0]
      %wide = constant float32[3] [1.0, 2.0, 3.0]
      %a: float32[1,3,4,4] = mul(%x, %before)
      %b: float32[1,2,4,4] = conv2d(%a, %w) {{{conv}}}
      %c: float32[1,2,3,3] = average_pool2d(%b) {{{pool}}}
      %y: float32[1,2,3,3] = mul(%c, %behind)
      %z: float32[1,2,3,3] = mul(%c, %wide)
    }}
    """)
    result = fold_scale_axis(graph)
    verify(result)
    assert_same_meaning(graph, result, tolerance=1e-6)
    # One of the products behind reads what the other does: only the one before goes.
    assert [node.op.name for node in result.nodes] == ["conv2d", "average_pool2d", "mul", "mul"]
    alone = replace(graph, outputs=graph.outputs[:1])
    folded = fold_scale_axis(alone)
    assert_same_meaning(alone, folded, tolerance=1e-6)
    assert [node.op.name for node in folded.nodes] == ["conv2d", "average_pool2d"]
