from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.analysis.deviation import measure_deviation
from microfold.analysis.product_sum import product_sum
from microfold.analysis.relaxation import Relaxation
from microfold.ir.graph import Graph, verify
from microfold.ir.interpret import Interpreter
from microfold.ir.text import parse, to_text
from microfold.ops import accumulate
from microfold.passes.context import Decision, PassContext
from microfold.transform.scales.combine_scale_shift import combine_scale_shift
from microfold.transform.scales.fold_quantized_scale_axis import fold_quantized_scale_axis
from microfold.transform.scales.quantized.product_sums import ChangedWeights
from microfold.transform.scales.quantized.proof import why_not_same_outputs
from tests.analysis.networks import networks
from tests.evaluation import assert_same_meaning, random_array
from tests.transform.check import check_declined, check_rewrite

NOT_PADDED = "padding=((0, 0), (0, 0))"
ATTRIBUTES = f"strides=(1, 1), dilations=(1, 1), {NOT_PADDED}"
KERNEL = [3, -5, 7, 11, 2, 3, 4, 5, 8, 7, 6, 5, 4, 3, 2, 1]


def relaxed(text: str) -> tuple[Graph, Graph, list[Decision]]:
    """The graph, what relaxed numerics make of it, and the decisions that fired."""
    decisions: list[Decision] = []
    graph = parse(dedent(text))
    context = PassContext(numerics="relaxed", sink=decisions.append)
    result = fold_quantized_scale_axis(graph, context)
    verify(result)
    assert fold_quantized_scale_axis(result, context) is result
    return graph, result, [decision for decision in decisions if decision.fired]


def steps(before: Graph, after: Graph) -> int:
    """The largest difference over random inputs."""
    rng = np.random.default_rng(1)
    calls = [[random_array(rng, value.type) for value in before.inputs] for _ in range(20)]
    (deviation,) = measure_deviation(before, after, calls)
    assert deviation.steps is not None
    return deviation.steps


def test_a_product_that_only_renames_integers_folds_exactly() -> None:
    decisions = check_rewrite(
        fold_quantized_scale_axis,
        f"""\
        graph @g(%x: int8[1,2,2,2] q(0.5, 3)) -> (%y) {{
          %w = constant int8[2,1,1,2] q(0.25, 0) [3, -5, 7, 11]
          %b = constant int32[2] [100, -200]
          %a: int8[1,2,2,2] q(1.5, -7) = conv2d(%x, %w, %b) {{{ATTRIBUTES}}}
          %r: int8[1,2,2,2] q(1.5, -7) = clip(%a) {{minimum=0.0, maximum=inf}}
          %s = constant int8[] q(0.5, 0) [1]
          %y: int8[1,2,2,2] q(0.75, -7) = mul(%r, %s)
        }}
        """,
        f"""\
        graph @g(%x: int8[1,2,2,2] q(0.5, 3)) -> (%y) {{
          %w = constant int8[2,1,1,2] q(0.125, 0) [3, -5, 7, 11]
          %b = constant int32[2] [100, -200]
          %a: int8[1,2,2,2] q(0.75, -7) = conv2d(%x, %w, %b) {{{ATTRIBUTES}}}
          %y: int8[1,2,2,2] q(0.75, -7) = clip(%a) {{minimum=0.0, maximum=inf}}
        }}
        """,
    )
    assert all(decision.evidence is None for decision in decisions)


def test_one_factor_in_front_folds_exactly() -> None:
    padded = ATTRIBUTES.replace("(0, 0), (0, 0)", "(1, 0), (0, 1)")
    check_rewrite(
        fold_quantized_scale_axis,
        f"""\
        graph @g(%x: int8[1,2,2,2] q(0.5, 3)) -> (%y) {{
          %s = constant int8[1] q(0.5, 0) [1]
          %m: int8[1,2,2,2] q(0.25, 3) = mul(%x, %s)
          %w = constant int8[2,2,2,2] q(axis=0, scales=[0.25, 1.0], zero_points=0) {KERNEL}
          %y: int8[1,2,2,2] q(1.5, -7) = conv2d(%m, %w) {{{padded}}}
        }}
        """,
        f"""\
        graph @g(%x: int8[1,2,2,2] q(0.5, 3)) -> (%y) {{
          %w = constant int8[2,2,2,2] q(axis=0, scales=[0.125, 0.5], zero_points=0) {KERNEL}
          %y: int8[1,2,2,2] q(1.5, -7) = conv2d(%x, %w) {{{padded}}}
        }}
        """,
    )


QUANT = "q(axis=0, scales=[0.01, 0.02, 0.03], zero_points=0)"
BEHIND = f"""\
    graph @g(%x: int8[1,4,4,2] q(0.02, 3)) -> (%y) {{
      %w = constant int8[3,1,1,2] {QUANT} [100, -50, 7, 110, 9, 90]
      %b = constant int32[3] [100, -200, 300]
      %a: int8[1,4,4,3] q(0.09, -7) = conv2d(%x, %w, %b) {{{ATTRIBUTES}}}
      %s = constant int8[1,1,1,3] q(0.01, 0) [80, -120, 0]
      %m: int8[1,4,4,3] q(0.1, 5) = mul(%s, %a)
      %t = constant int8[3] q(0.02, 1) [50, -70, 101]
      %y: int8[1,4,4,3] q(0.11, 2) = sub(%t, %m)
    }}
    """


def test_scale_and_shift_behind_weights() -> None:
    before, after, fired = relaxed(BEHIND)
    assert [node.op.name for node in after.nodes] == ["conv2d"]
    quant = "q(axis=0, scales=[0.007999999, 0.023999998, 9.536743e-05], zero_points=0)"
    assert to_text(after) == dedent(
        f"""\
        graph @g(%x: int8[1,4,4,2] q(0.02, 3)) -> (%y) {{
          %w = constant int8[3,1,1,2] {quant} [-100, 50, 7, 110, 0, 0]
          %b = constant int32[3] [6025, -3158, 1048576]
          %y: int8[1,4,4,3] q(0.11, 2) = conv2d(%x, %w, %b) {{{ATTRIBUTES}}}
        }}
        """
    )
    assert all(isinstance(decision.evidence, Relaxation) for decision in fired) and len(fired) == 2
    assert 0 < steps(before, after) <= 2


def test_exact_numerics_decline_what_changes_bits() -> None:
    check_declined(fold_quantized_scale_axis, BEHIND, "not the same bits: a sum of")


def test_behind_other_weights() -> None:
    depthwise = BEHIND.replace("int8[3,1,1,2] q(axis=0", "int8[1,1,1,3] q(axis=3").replace(
        "[100, -50, 7, 110, 9, 90]", "[100, -50, 90]"
    )
    depthwise = depthwise.replace("conv2d", "depthwise_conv2d").replace("[1,4,4,2]", "[1,4,4,3]")
    dense = BEHIND.replace("[1,4,4,", "[4,").replace("[3,1,1,2]", "[3,2]").replace("[1,1,1,3]", "[1,3]")
    dense = dense.replace("conv2d", "fully_connected").replace(f" {{{ATTRIBUTES}}}", "")
    for text in (depthwise, dense):
        before, after, _ = relaxed(text)
        assert len(after.nodes) == 1
        assert steps(before, after) <= 2


def test_clips_and_pools_are_carried_over() -> None:
    before, after, _ = relaxed(
        f"""\
        graph @g(%x: int8[1,4,4,2] q(0.02, 3)) -> (%y) {{
          %w = constant int8[2,1,1,2] q(0.01, 0) [100, -50, 7, 110]
          %a: int8[1,4,4,2] q(0.03, -7) = conv2d(%x, %w) {{{ATTRIBUTES}}}
          %r: int8[1,4,4,2] q(0.03, -7) = clip(%a) {{minimum=0.0, maximum=inf}}
          %p: int8[1,2,2,2] q(0.03, -7) = max_pool2d(%r) {{size=(2, 2), strides=(2, 2), {NOT_PADDED}}}
          %s = constant int8[2] q(0.01, 0) [80, 120]
          %y: int8[1,2,2,2] q(0.04, 5) = mul(%p, %s)
        }}
        """
    )
    assert [node.op.name for node in after.nodes] == ["conv2d", "clip", "max_pool2d"]
    assert steps(before, after) <= 1


IN_FRONT = """\
    graph @g(%x: int8[1,4,4,2] q(0.02, 3)) -> (%y) {{
      %s = constant int8[2] q(0.01, 0) [80, {second}]
      %m: int8[1,4,4,2] q(0.025, 5) = mul(%x, %s)
      %t = constant int8[1] q(0.01, 0) [{shift}]
      %n: int8[1,4,4,2] q(0.03, 5) = add(%m, %t)
      %w = constant int8[2,1,1,2] q(0.01, 0) [100, -50, 7, 110]
      %y: int8[1,{n},{n},2] q(0.05, 5) = conv2d(%n, %w) {{strides=(1, 1), dilations=(1, 1), {padding}}}
    }}
    """
PADDED = "padding=((1, 1), (1, 1))"


def test_padded_channels_have_no_weights_to_take_a_scale() -> None:
    check_declined(
        fold_quantized_scale_axis,
        f"""\
        graph @g(%x: int8[1,2,2,2] q(0.5, 3)) -> (%y) {{
          %w = constant int8[2,1,1,2] q(0.25, 0) [3, -5, 7, 11]
          %a: int8[1,2,2,2] q(1.5, -7) = conv2d(%x, %w) {{{ATTRIBUTES}}}
          %p: int8[1,2,2,3] q(1.5, -7) = pad(%a) {{padding=((0, 0), (0, 0), (0, 0), (1, 0)), fill=-7.0}}
          %s = constant int8[3] q(0.5, 0) [1, 2, 3]
          %y: int8[1,2,2,3] q(0.75, -7) = mul(%p, %s)
        }}
        """,
        "pad %p: it adds channels",
    )


def test_scale_and_shift_in_front_of_weights() -> None:
    text = IN_FRONT.format(second=120, shift=30, n=4, padding=NOT_PADDED)
    before, after, fired = relaxed(text)
    assert [node.op.name for node in after.nodes] == ["conv2d"]
    assert "rounded again" in fired[-1].reason
    assert steps(before, after) <= 3


def test_a_shift_in_front_of_padding_stays() -> None:
    text = IN_FRONT.format(second=120, shift=30, n=6, padding=PADDED)
    graph, after, fired = relaxed(text)
    assert after is graph and not fired
    decisions: list[Decision] = []
    fold_quantized_scale_axis(graph, PassContext(numerics="relaxed", sink=decisions.append))
    assert any("with zeros, without the shift" in decision.reason for decision in decisions)


def test_weights_that_would_lose_too_much_stay() -> None:
    text = IN_FRONT.format(second=1, shift=0, n=4, padding=NOT_PADDED).replace("7, 110]", "127, 1]")
    text = text.replace("q(0.05, 5) = conv2d", "q(0.00005, 5) = conv2d")
    graph = parse(dedent(text))
    decisions: list[Decision] = []
    fold_quantized_scale_axis(graph, PassContext(numerics="relaxed", sink=decisions.append))
    assert any("would change its outputs by about" in decision.reason for decision in decisions)


def test_another_reader_needs_the_value() -> None:
    text = BEHIND.replace("-> (%y)", "-> (%y, %m)")
    _, after, fired = relaxed(text)
    assert [node.op.name for node in after.nodes] == ["conv2d", "sub"]
    assert len(fired) == 1


@pytest.mark.parametrize("seed", range(12))
def test_exact_folds_are_exact(seed: int) -> None:
    """Random products with one constant: what fires gives the same bits for all 256 inputs."""
    rng = np.random.default_rng(seed)
    scale = float(rng.choice([0.5, 0.25, 1.0, 0.3]))
    point = int(rng.integers(-20, 20))
    weight = int(rng.integers(1, 128))
    text = f"""\
        graph @g(%x: int8[256,1] q(0.7, {rng.integers(-9, 9)})) -> (%y) {{
          %w = constant int8[1,1] q({rng.uniform(0.01, 0.03):.5f}, 0) [{weight}]
          %b = constant int32[1] [{rng.integers(-500, 500)}]
          %a: int8[256,1] q(1.25, {point}) = fully_connected(%x, %w, %b)
          %s = constant int8[] q({scale}, 0) [1]
          %y: int8[256,1] q({1.25 * scale}, {point}) = mul(%a, %s)
        }}
        """
    graph = parse(dedent(text))
    after = fold_quantized_scale_axis(graph)
    data = np.arange(-128, 128).astype(np.int8)[:, np.newaxis]
    (deviation,) = measure_deviation(graph, after, [[data]])
    assert deviation.steps == 0
    assert after is not graph or scale == 0.3


@pytest.mark.parametrize("change", [1 - 2e-6, 1.0, 1 + 2e-6])
def test_steps_that_move_by_a_single_sum_are_seen(change: float) -> None:
    """Multipliers so close that outputs differ for a few of four million sums, if at all."""
    text = """\
        graph @g(%x: int8[1,64] q(1.0, -128)) -> (%y) {{
          %w = constant int8[1,64] q({scale!r}d, 0) [{weights}]
          %y: int8[1,1] q(1.0, -100) = fully_connected(%x, %w)
        }}
        """
    weights = ", ".join(["100"] * 64)
    graphs = [parse(dedent(text.format(scale=scale, weights=weights))) for scale in (1e-4, 1e-4 * change)]
    nodes = [graph.nodes[0] for graph in graphs]
    constants = {value: array for graph in graphs for value, array in graph.constants.items()}
    one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
    result = ChangedWeights(zero, nodes[0].output.type, None, nodes[0].output.type, 0.0, one, zero)
    reason = why_not_same_outputs([nodes[0]], [nodes[1]], constants, result)

    sums = np.arange(64 * 100 * 255 + 1)[:, np.newaxis]
    outputs = [
        accumulate.requantize(sums, *found.multipliers, node.output.type.element, wide=found.wide)
        for graph, node in zip(graphs, nodes, strict=True)
        if (found := product_sum(node, graph)) is not None
    ]
    different = np.count_nonzero(outputs[0] != outputs[1])
    assert (reason is None) == (different == 0) == (change == 1.0)
    assert different < 1000


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=80)
@given(graph=networks())
def test_random_networks(graph: Graph) -> None:
    """Exact folds keep every bit; relaxed ones leave a graph of the same inputs and outputs that runs."""
    assert_same_meaning(graph, fold_quantized_scale_axis(graph))
    context = PassContext(numerics="relaxed")
    after = combine_scale_shift(fold_quantized_scale_axis(graph, context), context)
    verify(after)
    assert [v.type for v in after.outputs] == [v.type for v in graph.outputs]
    Interpreter(after).run(*(np.zeros(v.type.shape, v.type.dtype.numpy) for v in after.inputs))


def test_other_layouts_stay() -> None:
    """The last axis of an NCHW image is no axis of channels."""
    text = f"""\
        graph @g(%x: int8[1,2,4,3] q(0.02, 3)) -> (%y) {{
          %w = constant int8[3,1,1,2] {QUANT} [100, -50, 7, 110, 9, 90]
          %a: int8[1,3,4,3] q(0.09, -7) = conv2d(%x, %w) {{{ATTRIBUTES}, layout="NCHW"}}
          %s = constant int8[3] q(0.01, 0) [80, -120, 0]
          %y: int8[1,3,4,3] q(0.1, 5) = mul(%a, %s)
        }}
        """
    graph = parse(dedent(text))
    assert fold_quantized_scale_axis(graph, PassContext(numerics="relaxed")) is graph
