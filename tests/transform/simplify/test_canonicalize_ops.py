from __future__ import annotations

import numpy as np
import pytest

from microfold.ir.text import parse
from microfold.ir.types import DType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.passes.context import Numerics, PassContext
from microfold.pipeline import optimize
from microfold.transform.simplify.canonicalize_ops import canonicalize_ops
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite


def check(before: str, after: str, type: str = "float32[2,4]", tolerance: float = 0.0) -> None:
    """Graphs of one input %x of a type, given by their nodes; the output is %y, or %x."""
    texts: list[str] = []
    for nodes in (before, after):
        lines = "".join(f"  {line.strip()}\n" for line in nodes.strip().splitlines())
        texts.append(f"graph @g(%x: {type}) -> ({'%y' if lines else '%x'}) {{\n{lines}}}\n")
    check_rewrite(canonicalize_ops, *texts, tolerance=tolerance)


def test_reshapes() -> None:
    check(
        """
        %a: float32[8] = reshape(%x) {shape=(8,)}
        %b: float32[1,8] = reshape(%a) {shape=(1, 8)}
        %y: float32[4,2] = reshape(%b) {shape=(4, 2)}
        """,
        "%y: float32[4,2] = reshape(%x) {shape=(4, 2)}",
    )
    check("%a: float32[8] = reshape(%x) {shape=(8,)}\n%y: float32[2,4] = reshape(%a) {shape=(2, 4)}", "")
    check("%y: float32[2,4] = reshape(%x) {shape=(2, 4)}", "")


def test_transposes() -> None:
    check(
        """
        %a: float32[4,1,2] = transpose(%x) {permutation=(2, 0, 1)}
        %y: float32[2,1,4] = transpose(%a) {permutation=(2, 1, 0)}
        """,
        "%y: float32[2,1,4] = transpose(%x) {permutation=(1, 0, 2)}",
        type="float32[1,2,4]",
    )
    check(
        """
        %a: float32[4,2] = transpose(%x) {permutation=(1, 0)}
        %y: float32[2,4] = transpose(%a) {permutation=(1, 0)}
        """,
        "",
    )


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        ((0.0, "inf"), ("-inf", 6.0), (0.0, 6.0)),
        ((-1.0, 4.0), (0.0, 6.0), (0.0, 4.0)),
        ((-1.0, 1.0), (2.0, 3.0), (2.0, 2.0)),  # disjoint: a constant
        ((2.0, 3.0), (-1.0, 1.0), (1.0, 1.0)),
    ],
)
@pytest.mark.parametrize("type", ["float32[2,4]", "int8[2,4] q(0.05, -7)"])
def test_clips(
    first: tuple[object, object], second: tuple[object, object], merged: tuple[object, object], type: str
) -> None:
    check(
        f"""
        %a: {type} = clip(%x) {{minimum={first[0]}, maximum={first[1]}}}
        %y: {type} = clip(%a) {{minimum={second[0]}, maximum={second[1]}}}
        """,
        f"%y: {type} = clip(%x) {{minimum={merged[0]}, maximum={merged[1]}}}",
        type=type,
    )


def test_clips_that_clip_nothing() -> None:
    check("%y: float32[2,4] = clip(%x) {minimum=-inf, maximum=inf}", "")
    # -128 stands for 0, 127 for 4.98.
    type = "int8[2,4] q(0.01953125, -128)"
    check(f"%y: {type} = clip(%x) {{minimum=0.0, maximum=6.0}}", "", type=type)


def test_clip_of_what_is_within_its_bounds() -> None:
    """It goes even if the inner clip has other readers, for which two are not merged."""
    check(
        """
        %a: float32[2,4] = clip(%x) {minimum=0.0, maximum=6.0}
        %b: float32[2,4] = clip(%a) {minimum=0.0, maximum=inf}
        %y: float32[2,4] = add(%a, %b)
        """,
        """
        %a: float32[2,4] = clip(%x) {minimum=0.0, maximum=6.0}
        %y: float32[2,4] = add(%a, %a)
        """,
    )


def test_pads() -> None:
    check(
        """
        %a: float32[4,6] = pad(%x) {padding=((1, 1), (0, 2)), fill=0.0}
        %b: float32[4,6] = pad(%a) {padding=((0, 0), (0, 0)), fill=9.0}
        %y: float32[5,7] = pad(%b) {padding=((1, 0), (1, 0)), fill=0.0}
        """,
        "%y: float32[5,7] = pad(%x) {padding=((2, 1), (1, 2)), fill=0.0}",
    )


@pytest.mark.parametrize("kind", ["int8", "int16", "float32"])
def test_grouped_convolution_is_depthwise(kind: str) -> None:
    window = "{strides=(1, 1), dilations=(1, 1), padding=((0, 1), (1, 0))}"
    clip = "| clip() {minimum=-1.0, maximum=9.0}"
    zero_point = 3 if kind == "int8" else 0
    bias = {"int8": "int32", "int16": "int64", "float32": "float32"}[kind]
    filters = "float32" if kind == "float32" else "int8"
    in_quant, out_quant, scales, last = (
        ("", "", "", "")
        if kind == "float32"
        else (
            f" q(0.1, {zero_point})",
            f" q(0.4, {zero_point})",
            " q(axis=0, scales=[0.1, 0.2, 0.3, 0.4], zero_points=0)",
            " q(axis=3, scales=[0.1, 0.2, 0.3, 0.4], zero_points=0)",
        )
    )
    filter = np.array([1, 2, 3, -4, 5, 6, -7, 8, 9, -10, 11, 12, -13, 14, 15, -16], DType(filters).numpy)
    turned = filter.reshape(4, 4).T.reshape(-1)
    data = "[1.0, 2.0, 3.0, 4.0]" if kind == "float32" else "[1, 2, 3, 4]"
    check(
        f"""
        %w = constant {filters}[4,2,2,1]{scales} {filter.tolist()}
        %b = constant {bias}[4] {data}
        %y: {kind}[1,3,3,4]{out_quant} = conv2d(%x, %w, %b) {window} {clip}
        """,
        f"""
        %w = constant {filters}[1,2,2,4]{last} {turned.tolist()}
        %b = constant {bias}[4] {data}
        %y: {kind}[1,3,3,4]{out_quant} = depthwise_conv2d(%x, %w, %b) {window} {clip}
        """,
        type=f"{kind}[1,3,3,2]{in_quant}",
        tolerance=1e-6,
    )


def test_what_stays() -> None:
    graph = """
        graph @g(%x: float32[2,4], %i: float32[1,3,3,1], %w: float32[4,1,1,1], %j: float32[1,2,2,2]) -> (
          %a, %b, %c, %d, %e, %t, %u
        ) {
          // A clip whose first one has another reader: merging would cost the fusion of the first.
          %a: float32[2,4] = clip(%x) {minimum=0.0, maximum=6.0}
          %b: float32[2,4] = clip(%a) {minimum=-1.0, maximum=1.0}
          // Pads of different fills.
          %p: float32[3,4] = pad(%x) {padding=((1, 0), (0, 0)), fill=0.0}
          %c: float32[4,4] = pad(%p) {padding=((1, 0), (0, 0)), fill=1.0}
          // A single input channel is an ordinary convolution; filters of unknown value stay where they are.
          %d: float32[1,3,3,4] = conv2d(%i, %w) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}
          %e: float32[1,2,2,4] = conv2d(%j, %w) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}
          %t: float32[4,2] = transpose(%x) {permutation=(1, 0)}
          %u: float32[8] = reshape(%x) {shape=(8,)}
        }
        """
    check_declined(canonicalize_ops, graph, "filter is not constant")
    check_declined(canonicalize_ops, graph, "it fills with 1, its operand with 0")


CONV = "{strides=(1, 1), dilations=(1, 1), padding=((1, 0), (0, 0))}"


def test_constants_that_change_nothing() -> None:
    for node in ("add(%x, %c)", "add(%c, %x)"):
        check(f"%c = constant float32[4] [0.0, 0.0, 0.0, 0.0]\n%y: float32[2,4] = {node}", "")
    for node in ("mul(%x, %c)", "mul(%c, %x)"):
        check(f"%c = constant float32[] [1.0]\n%y: float32[2,4] = {node}", "")


def test_reshapes_removed_by_name_only() -> None:
    """What they hide is found, unless the pass that removes them is disabled."""
    graph = """
        graph @g(%x: float32[2,4]) -> (%y) {
          %a: float32[2,4] = clip(%x) {minimum=0.0, maximum=6.0}
          %b: float32[2,4] = reshape(%a) {shape=(2, 4)}
          %y: float32[2,4] = clip(%b) {minimum=0.0, maximum=1.0}
        }
        """
    after = """
        graph @g(%x: float32[2,4]) -> (%y) {
          %y: float32[2,4] = clip(%x) {minimum=0.0, maximum=1.0}
        }
        """
    check_rewrite(canonicalize_ops, graph, after)
    parsed = parse(graph)
    assert canonicalize_ops(parsed, PassContext(disabled_pass=["remove_redundant_reshape"])) is parsed


@pytest.mark.parametrize(
    ("numerics", "divisors", "factors"),
    [
        ("exact", "[2.0, -0.25, 1.0, 8.0]", "[0.5, -4.0, 1.0, 0.125]"),
        ("relaxed", "[2.0, -0.25, 5.0, 8.0]", "[0.5, -4.0, 0.2, 0.125]"),
    ],
)
def test_quotient_with_a_constant(numerics: Numerics, divisors: str, factors: str) -> None:
    check_rewrite(
        canonicalize_ops,
        f"""
        graph @g(%x: float32[2,4]) -> (%y) {{
          %c = constant float32[4] {divisors}
          %y: float32[2,4] = div(%x, %c) | clip() {{minimum=0.0, maximum=6.0}}
        }}
        """,
        f"""
        graph @g(%x: float32[2,4]) -> (%y) {{
          %c = constant float32[4] {factors}
          %y: float32[2,4] = mul(%x, %c) | clip() {{minimum=0.0, maximum=6.0}}
        }}
        """,
        PassContext(numerics=numerics),
        tolerance=0.0 if numerics == "exact" else 1e-6,
    )


@pytest.mark.parametrize(
    ("divisor", "reason"),
    [
        ("3.0", "is no power of two"),
        ("0.0", "has no reciprocal in float32"),
        ("inf", "has no reciprocal"),
        ("1.0e-40", "has no reciprocal"),
        ("1.7014118e38", "has no reciprocal"),
    ],
)
def test_quotients_that_stay(divisor: str, reason: str) -> None:
    graph = """
        graph @g(%x: float32[2]) -> (%y, %z) {
          %c = constant float32[1] [@]
          %y: float32[2] = div(%x, %c)
          %z: float32[2] = div(%c, %x)
        }
        """
    check_declined(canonicalize_ops, graph.replace("[@]", f"[{divisor}]"), reason)


def test_negative() -> None:
    """It merges with products as a factor does."""
    check(
        """
        %a: float32[2,4] = unary(%x) {function="neg"}
        %c = constant float32[4] [1.0, -2.0, 3.0, 4.0]
        %y: float32[2,4] = mul(%a, %c)
        """,
        "%c = constant float32[4] [-1.0, 2.0, -3.0, -4.0]\n%y: float32[2,4] = mul(%x, %c)",
    )


def test_batch_norm_behind_a_bias_is_one_convolution_with_one_bias() -> None:
    """However a converter has written it: with quotients, differences, in whatever order."""
    graph = parse(
        """
        graph @g(%x: float32[1,3,3,2]) -> (%y) {
          %w = constant float32[2,2,2,2] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
          %a: float32[1,2,2,2] = conv2d(%x, %w) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}
          %bias = constant float32[2] [0.5, -0.5]
          %b: float32[1,2,2,2] = add(%bias, %a)
          %mean = constant float32[1,1,1,2] [3.0, 4.0]
          %c: float32[1,2,2,2] = sub(%b, %mean)
          %deviation = constant float32[2] [1.5, 0.7]
          %d: float32[1,2,2,2] = div(%c, %deviation)
          %gamma = constant float32[2] [-1.1, 2.0]
          %e: float32[1,2,2,2] = mul(%d, %gamma)
          %beta = constant float32[] [0.25]
          %f: float32[1,2,2,2] = add(%e, %beta)
          %n: float32[1,2,2,2] = unary(%f) {function="neg"}
          %y: float32[1,2,2,2] = clip(%n) {minimum=0.0, maximum=6.0}
        }
        """
    )
    optimized = optimize(graph)
    (node,) = optimized.nodes
    assert isinstance(node.op, Conv2D)
    assert len(node.inputs) == 3
    assert [step.op.name for step in node.epilogue] == ["clip"]
    assert_same_meaning(graph, optimized, tolerance=1e-5)


def test_difference_with_a_constant() -> None:
    check(
        "%c = constant float32[] [2.0]\n%y: float32[2,4] = sub(%x, %c)",
        "%c = constant float32[] [-2.0]\n%y: float32[2,4] = add(%x, %c)",
    )


@pytest.mark.parametrize(
    ("op", "both"), [("add", "[12.0, 13.0, 14.0, 15.0]"), ("mul", "[20.0, 30.0, 40.0, 50.0]")]
)
def test_two_constants(op: str, both: str) -> None:
    check(
        f"""
        %c = constant float32[] [10.0]
        %a: float32[2,4] = {op}(%c, %x)
        %d = constant float32[4] [2.0, 3.0, 4.0, 5.0]
        %y: float32[2,4] = {op}(%a, %d)
        """,
        f"%d = constant float32[4] {both}\n%y: float32[2,4] = {op}(%x, %d)",
        tolerance=1e-6,
    )


@pytest.mark.parametrize("scalar", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_bias(scalar: bool, bias: bool) -> None:
    constant = "[] [10.0]" if scalar else "[1,1,2] [10.0, 20.0]"
    total = ([11.0, 12.0] if bias else [10.0, 10.0]) if scalar else ([11.0, 22.0] if bias else [10.0, 20.0])
    given, name = ("%b = constant float32[2] [1.0, 2.0]\n", "b") if bias else ("", "y_bias")
    check(
        f"""%w = constant float32[2,1,1,1] [1.0, 2.0]
        {given}%a: float32[1,3,2,2] = conv2d(%x, %w{", %b" if bias else ""}) {CONV}
        %c = constant float32{constant}
        %y: float32[1,3,2,2] = add(%a, %c)""",
        f"""%w = constant float32[2,1,1,1] [1.0, 2.0]
        %{name} = constant float32[2] {total}
        %y: float32[1,3,2,2] = conv2d(%x, %w, %{name}) {CONV}""",
        type="float32[1,2,2,1]",
        tolerance=1e-6,
    )


def test_conv_add_add_is_one_convolution() -> None:
    check(
        """
        %w = constant float32[2,4] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        %a: float32[2,2] = fully_connected(%x, %w)
        %c = constant float32[2] [10.0, 20.0]
        %b: float32[2,2] = add(%a, %c)
        %d = constant float32[1] [1.0]
        %y: float32[2,2] = sub(%b, %d)
        """,
        """
        %w = constant float32[2,4] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        %b_bias = constant float32[2] [9.0, 19.0]
        %y: float32[2,2] = fully_connected(%x, %w, %b_bias)
        """,
        tolerance=1e-6,
    )


def test_constants_that_stay() -> None:
    graph = """
        graph @g(%x: float32[2,4], %q: int8[4] q(0.1, 0)) -> (%a, %b, %e, %f, %r) {
          // Another reader of the first sum; constants whose sum would be larger; not per channel.
          %c = constant float32[4] [1.0, 2.0, 3.0, 4.0]
          %d = constant float32[2,1] [5.0, 6.0]
          %a: float32[2,4] = add(%x, %c)
          %b: float32[2,4] = add(%a, %c)
          %i: float32[2,4] = add(%x, %d)
          %e: float32[2,4] = add(%i, %c)
          %w = constant float32[1,4] [1.0, 2.0, 3.0, 4.0]
          %j: float32[2,1] = fully_connected(%x, %w)
          %f: float32[2,1] = add(%j, %d)
          // Quantised: rounded in between.
          %k = constant int8[4] q(0.1, 0) [0, 0, 0, 0]
          %r: int8[4] q(0.2, 0) = add(%q, %k)
        }
        """
    check_declined(canonicalize_ops, graph, "(4,) and (2, 1), would become (2, 4)")
    check_declined(canonicalize_ops, graph, "(2, 1) is no bias")


def test_parts_that_are_neighbours() -> None:
    check_rewrite(
        canonicalize_ops,
        """
        graph @g(%x: int8[1,6], %z: int8[1,2]) -> (%p, %q, %r) {
          %a: int8[1,2] = strided_slice(%x) {begin=(0, 0), size=(1, 2), strides=(1, 1)}
          %b: int8[1,1] = strided_slice(%x) {begin=(0, 2), size=(1, 1), strides=(1, 1)}
          %c: int8[1,3] = strided_slice(%x) {begin=(0, 3), size=(1, 3), strides=(1, 1)}
          %p: int8[1,6] = concatenate(%a, %b, %c) {axis=1}
          %d: int8[1,1] = strided_slice(%x) {begin=(0, 1), size=(1, 1), strides=(1, 1)}
          %e: int8[1,3] = strided_slice(%x) {begin=(0, 2), size=(1, 3), strides=(1, 1)}
          %q: int8[1,6] = concatenate(%z, %d, %e) {axis=1}
          %r: int8[1,2] = concatenate(%z) {axis=1}
        }
        """,
        """
        graph @g(%x: int8[1,6], %z: int8[1,2]) -> (%x, %q#1, %z) {
          %q: int8[1,4] = strided_slice(%x) {begin=(0, 1), size=(1, 4), strides=(1, 1)}
          %q#1: int8[1,6] = concatenate(%z, %q) {axis=1}
        }
        """,
    )


@pytest.mark.parametrize(
    ("first", "second", "outputs"),
    [
        ("{begin=(0, 0), size=(1, 2), strides=(1, 1)}", "{begin=(0, 3), size=(1, 2), strides=(1, 1)}", "%y"),
        ("{begin=(0, 2), size=(1, 2), strides=(1, 1)}", "{begin=(0, 0), size=(1, 2), strides=(1, 1)}", "%y"),
        ("{begin=(0, 0), size=(1, 2), strides=(1, 2)}", "{begin=(0, 3), size=(1, 2), strides=(1, 1)}", "%y"),
        (
            "{begin=(0, 0), size=(1, 2), strides=(1, 1)}",
            "{begin=(0, 2), size=(1, 2), strides=(1, 1)}",
            "%y, %a",
        ),
    ],
)
def test_parts_that_are_not(first: str, second: str, outputs: str) -> None:
    check_declined(
        canonicalize_ops,
        f"""
        graph @g(%x: int8[1,6]) -> ({outputs}) {{
          %a: int8[1,2] = strided_slice(%x) {first}
          %b: int8[1,2] = strided_slice(%x) {second}
          %y: int8[1,4] = concatenate(%a, %b) {{axis=1}}
        }}
        """,
    )


def test_maximum_and_minimum_with_a_number() -> None:
    check_rewrite(
        canonicalize_ops,
        """
        graph @g(%x: float32[4], %i: float32[4]) -> (%y, %z) {
          %zero = constant float32[] [0.0]
          %six = constant float32[1] [6.0]
          %a: float32[4] = mul(%x, %i)
          %b: float32[4] = maximum(%zero, %a)
          %y: float32[4] = minimum(%b, %six)
          %z: float32[4] = minimum(%x, %six)
        }
        """,
        """
        graph @g(%x: float32[4], %i: float32[4]) -> (%y, %z) {
          %a: float32[4] = mul(%x, %i)
          %y: float32[4] = clip(%a) {minimum=0.0, maximum=6.0}
          %six = constant float32[1] [6.0]
          %z: float32[4] = minimum(%x, %six)
        }
        """,
    )
