from __future__ import annotations

from textwrap import dedent

import numpy as np

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.analysis.deviation import measure_deviation
from microfold.analysis.relaxation import Relaxation
from microfold.ir.graph import verify
from microfold.ir.text import parse, to_text
from microfold.passes.context import Decision, PassContext
from microfold.transform.scales.combine_scale_shift import combine_scale_shift
from tests.evaluation import random_array
from tests.transform.check import check_declined

ROW = """\
    graph @g(%x: int8[1,4,4,3] q(0.02, 3)) -> (%z) {
      %s = constant int8[3] q(0.01, 0) [80, -120, 0]
      %m: int8[1,4,4,3] q(0.03, 5) = mul(%x, %s)
      %t = constant int8[1,1,1,3] q(0.005, 0) [50, -70, 101]
      %y: int8[1,4,4,3] q(0.03, 2) = add(%m, %t)
      %z: int8[1,4,4,3] q(0.03, 2) = clip(%y) {minimum=0.0, maximum=inf}
    }
    """

QUANT = "q(axis=3, scales=[0.0062992126, 0.009448819, 2.4080276e-05], zero_points=0)"
ATTRIBUTES = "strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))"


def test_a_product_and_a_sum_are_one_depthwise_convolution() -> None:
    decisions: list[Decision] = []
    before = parse(dedent(ROW))
    context = PassContext(numerics="relaxed", sink=decisions.append)
    after = combine_scale_shift(before, context)
    verify(after)
    assert to_text(after) == dedent(
        f"""\
        graph @g(%x: int8[1,4,4,3] q(0.02, 3)) -> (%z) {{
          %y_scale = constant int8[1,1,1,3] {QUANT} [127, -127, 0]
          %y_shift = constant int32[3] [1984, -1852, 1048576]
          %y: int8[1,4,4,3] q(0.03, 2) = depthwise_conv2d(%x, %y_scale, %y_shift) {{{ATTRIBUTES}}}
          %z: int8[1,4,4,3] q(0.03, 2) = clip(%y) {{minimum=0.0, maximum=inf}}
        }}
        """
    )
    assert [isinstance(decision.evidence, Relaxation) for decision in decisions] == [True]
    assert combine_scale_shift(after, context) is after
    rng = np.random.default_rng(0)
    calls = [[random_array(rng, value.type) for value in before.inputs] for _ in range(20)]
    (deviation,) = measure_deviation(before, after, calls)
    assert deviation.steps == 1


def test_exact_numerics_keep_both() -> None:
    check_declined(combine_scale_shift, ROW, "not the same bits")


def test_a_value_with_another_reader_is_not_left_out() -> None:
    graph = parse(dedent(ROW.replace("-> (%z)", "-> (%z, %m)")))
    assert combine_scale_shift(graph, PassContext(numerics="relaxed")) is graph


def test_one_alone_stays() -> None:
    graph = parse(dedent(ROW.replace("add(%m, %t)", "maximum(%m, %m)").replace("q(0.03, 2)", "q(0.03, 5)")))
    assert combine_scale_shift(graph, PassContext(numerics="relaxed")) is graph
