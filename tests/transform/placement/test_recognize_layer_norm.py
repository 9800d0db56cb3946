"""Layer normalisation that is spelled out becomes one operator."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.ir.text import parse, to_text
from microfold.passes.context import PassContext
from microfold.pipeline import optimize
from microfold.transform.placement.recognize_layer_norm import recognize_layer_norm
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined

ROW, GAMMA, BETA = "float32[1,4,8]", [0.5, 1.0, 1.5, 2.0, -1.0, 3.0, 0.25, 1.0], [0.1 * k for k in range(8)]
CONSTANTS = f"""
  %gamma = constant float32[8] {GAMMA}
  %beta = constant float32[8] {BETA}
  %epsilon = constant float32[] [0.001]
  %minus = constant float32[] [-1.0]
"""
MOMENTS = f"""
  %m: float32[1,4,1] = mean(%x) {{axes=(2,), keep_dims=true}}
  %d: {ROW} = squared_difference(%x, %m)
  %v: float32[1,4,1] = mean(%d) {{axes=(2,), keep_dims=true}}
  %e: float32[1,4,1] = add(%v, %epsilon)
  %r: float32[1,4,1] = rsqrt(%e)
"""
KERAS = f"""
  %s: {ROW} = mul(%r, %gamma)
  %a: {ROW} = mul(%x, %s)
  %b: {ROW} = mul(%m, %s)
  %c: {ROW} = sub(%beta, %b)
  %y: {ROW} = add(%a, %c)
"""
SPELLINGS = {
    "keras": MOMENTS + KERAS,
    "negated_mean": MOMENTS
    + f"""
  %n: float32[1,4,1] = mul(%m, %minus)
  %s: {ROW} = mul(%r, %gamma)
  %b: {ROW} = mul(%n, %s)
  %t: {ROW} = add(%b, %beta)
  %a: {ROW} = mul(%x, %s)
  %y: {ROW} = add(%a, %t)
""",
    "centred": f"""
  %m: float32[1,4] = mean(%x) {{axes=(2,), keep_dims=false}}
  %k: float32[1,4,1] = reshape(%m) {{shape=(1, 4, 1)}}
  %d: {ROW} = sub(%x, %k)
  %q: {ROW} = unary(%d) {{function="square"}}
  %v: float32[1,4] = mean(%q) {{axes=(2,), keep_dims=false}}
  %e: float32[1,4] = add(%epsilon, %v)
  %r: float32[1,4] = rsqrt(%e)
  %p: float32[1,4,1] = reshape(%r) {{shape=(1, 4, 1)}}
  %n: {ROW} = mul(%d, %p)
  %g: {ROW} = mul(%n, %gamma)
  %y: {ROW} = add(%g, %beta)
""",
    # A batch of one is averaged, too; then there is one number for each row.
    "numbers_of_rows": f"""
  %m: float32[4] = mean(%x) {{axes=(0, 2), keep_dims=false}}
  %k: float32[1,4,1] = reshape(%m) {{shape=(1, 4, 1)}}
  %d: {ROW} = squared_difference(%x, %k)
  %v: float32[4] = mean(%d) {{axes=(0, 2), keep_dims=false}}
  %e: float32[4] = add(%v, %epsilon)
  %r: float32[4] = rsqrt(%e)
  %n: float32[4] = mul(%m, %r)
  %z: float32[4] = mul(%n, %minus)
  %p: float32[1,4,1] = reshape(%r) {{shape=(1, 4, 1)}}
  %o: float32[1,4,1] = reshape(%z) {{shape=(1, 4, 1)}}
  %a: {ROW} = mul(%x, %p)
  %b: {ROW} = add(%a, %o)
  %g: {ROW} = mul(%b, %gamma)
  %y: {ROW} = add(%g, %beta)
""",
}


def _graph(body: str, outputs: str = "%y") -> str:
    return f"graph @g(%x: {ROW}) -> ({outputs}) {{ {CONSTANTS} {body} }}"


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name: str) -> None:
    graph = parse(_graph(SPELLINGS[name]))
    result = recognize_layer_norm(graph, PassContext())
    (node,) = result.nodes
    text = to_text(result).splitlines()
    assert (
        text[-2]
        == f"  %y: {ROW} = standardize(%x, %y_scale, %y_shift) {{epsilon={float(np.float32(0.001))}}}"
    )
    scale, shift = (result.array(value) for value in node.operands[1:])
    assert scale is not None and shift is not None
    np.testing.assert_array_equal(scale, np.array(GAMMA, np.float32))
    np.testing.assert_array_equal(shift, np.array(BETA, np.float32))
    assert_same_meaning(graph, result, tolerance=1e-5)
    assert recognize_layer_norm(result) is result


def test_without_scale_and_shift() -> None:
    graph = parse(_graph(MOMENTS + f"%a: {ROW} = sub(%x, %m)\n %y: {ROW} = mul(%a, %r)"))
    result = recognize_layer_norm(graph)
    (node,) = result.nodes
    assert [result.array(value) for value in node.operands[1:]] == [1, 0]
    assert_same_meaning(graph, result, tolerance=1e-5)


@pytest.mark.parametrize("value", ["m", "d", "v", "r", "s", "c"])
def test_other_readers(value: str) -> None:
    text = _graph(SPELLINGS["keras"], f"%y, %{value}")
    check_declined(recognize_layer_norm, text, f"%{value} has other readers")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("mul(%m, %s)", "mul(%x, %s)", "no node after it computes scale * (x - mean) / deviation + shift"),
        (
            "sub(%beta, %b)",
            "add(%beta, %b)",
            "no node after it computes scale * (x - mean) / deviation + shift",
        ),
        ("squared_difference(%x, %m)", "squared_difference(%x, %beta)", "no difference from a mean"),
        ("add(%v, %epsilon)", "mul(%v, %epsilon)", "its operand is not the sum of a variance and a number"),
        ("mean(%d) {axes=(2,)", "sum(%d) {axes=(2,)", "no variance along the last axis"),
        ("[0.001]", "[-0.001]", "may have no root"),
    ],
)
def test_something_else(old: str, new: str, reason: str) -> None:
    text = _graph(SPELLINGS["keras"])
    assert old in text
    check_declined(recognize_layer_norm, text.replace(old, new), reason)


def test_constants_along_the_rows() -> None:
    """What is different for each row is neither scale nor shift, even where a row is as long."""
    text = """
    graph @g(%x: float32[4,4]) -> (%y) {
      %t = constant float32[4] [1.0, 2.0, 3.0, 4.0]
      %epsilon = constant float32[] [0.001]
      %m: float32[4] = mean(%x) {axes=(1,), keep_dims=false}
      %k: float32[4,1] = reshape(%m) {shape=(4, 1)}
      %d: float32[4,4] = squared_difference(%x, %k)
      %v: float32[4] = mean(%d) {axes=(1,), keep_dims=false}
      %e: float32[4] = add(%v, %epsilon)
      %r: float32[4] = rsqrt(%e)
      %s: float32[4] = mul(%r, %t)
      %p: float32[4,1] = reshape(%s) {shape=(4, 1)}
      %c: float32[4,4] = sub(%x, %k)
      %y: float32[4,4] = mul(%c, %p)
    }
    """
    check_declined(recognize_layer_norm, text, "no node after it computes scale")
    text = text.replace("mul(%c, %p)", "mul(%c, %s)").replace("mul(%r, %t)", "add(%r, %r)")
    check_declined(recognize_layer_norm, text, "no node after it computes scale")


def test_along_other_axes() -> None:
    text = _graph(MOMENTS + f"%a: {ROW} = sub(%x, %m)\n %y: {ROW} = mul(%a, %r)")
    text = text.replace("axes=(2,)", "axes=(1,)").replace("[1,4,1]", "[1,1,8]")
    check_declined(recognize_layer_norm, text, "no variance along the last axis")


def test_where_one_operator_is_dearer() -> None:
    def cost(node: Node, graph: Graph) -> float:
        del graph
        return 1000.0 if node.op.name == "standardize" else 10.0

    context = PassContext(node_cost=cost)
    text = _graph(SPELLINGS["keras"])
    check_declined(recognize_layer_norm, text, "about 1000 cycles; separate nodes need 100", context)


def test_scales_go_into_weights_first() -> None:
    weights = "dense<" + "AACAPwAAgD8AAIA/AACAPwAAgD8AAIA/AACAPwAAgD8=" + ">"
    body = (
        SPELLINGS["keras"]
        + f"""
  %w = constant float32[1,8] {weights}
  %f: float32[4,8] = reshape(%y) {{shape=(4, 8)}}
  %z: float32[4,1] = fully_connected(%f, %w)
"""
    )
    graph = parse(_graph(body, "%z"))
    result = optimize(graph)
    assert "standardize" in [node.op.name for node in result.nodes]
    assert_same_meaning(graph, result, tolerance=1e-5)
