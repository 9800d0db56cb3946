"""Normalisations become products and sums."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from microfold.errors import InputError, TypeRuleError
from microfold.ir.text import parse, to_text
from microfold.ir.types import DType, TensorType
from microfold.ops.elementwise.dropout import Dropout
from microfold.ops.normalize.batch_norm import BatchNorm
from microfold.ops.normalize.layer_norm import LayerNorm
from microfold.transform.simplify.simplify_inference import SimplifyInference, simplify_inference
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

BATCH_NORM = """
    graph @g(%x: float32[{shape}]) -> (%y) {{
      %g = constant float32[2] [2.0, 3.0]
      %b = constant float32[2] [1.0, -1.0]
      %m = constant float32[2] [0.5, 0.25]
      %v = constant float32[2] [4.0, 0.25]
      %y: float32[{shape}] = batch_norm(%x, %g, %b, %m, %v) {{axis={axis}, epsilon=0.0}}
    }}
    """


def test_batch_norm() -> None:
    check_rewrite(
        simplify_inference,
        BATCH_NORM.format(shape="1,3,2", axis=2),
        """
        graph @g(%x: float32[1,3,2]) -> (%y) {
          %y_scale = constant float32[1,1,2] [1.0, 6.0]
          %y_scaled: float32[1,3,2] = mul(%x, %y_scale)
          %y_shift = constant float32[1,1,2] [0.5, -2.5]
          %y: float32[1,3,2] = add(%y_scaled, %y_shift)
        }
        """,
    )


def test_another_axis() -> None:
    before = parse(BATCH_NORM.format(shape="1,2,3", axis=1))
    after = simplify_inference(before)
    assert [node.op.name for node in after.nodes] == ["mul", "add"]
    assert_same_meaning(before, after)


def test_computed_statistics() -> None:
    before = parse(
        """
        graph @g(%x: float32[1,2,3], %g: float32[2], %b: float32[2], %m: float32[2], %s: float32[2]) -> (%y) {
          %v: float32[2] = abs(%s)
          %y: float32[1,2,3] = batch_norm(%x, %g, %b, %m, %v) {axis=1, epsilon=0.5}
        }
        """
    )
    after = simplify_inference(before)
    assert not any(isinstance(node.op, BatchNorm) for node in after.nodes)
    assert_same_meaning(before, after, tolerance=1e-5)
    assert to_text(simplify_inference(after)) == to_text(after)


@pytest.mark.parametrize("axis", [1, 2])
def test_layer_norm(axis: int) -> None:
    shape = [4, 3, 2][axis:]
    values = ", ".join(str(0.5 + i) for i in range(int(np.prod(shape))))
    kind = f"float32[{','.join(map(str, shape))}]"
    before = parse(
        f"""
        graph @g(%x: float32[4,3,2]) -> (%y) {{
          %g = constant {kind} [{values}]
          %b = constant {kind} [{values}]
          %y: float32[4,3,2] = layer_norm(%x, %g, %b) {{axis={axis}, epsilon=0.001}}
        }}
        """
    )
    after = simplify_inference(before)
    assert not any(isinstance(node.op, LayerNorm) for node in after.nodes)
    assert_same_meaning(before, after, tolerance=1e-6)


def test_dropout() -> None:
    check_rewrite(
        simplify_inference,
        """
        graph @g(%x: float32[4]) -> (%y) {
          %a: float32[4] = dropout(%x) {rate=0.5}
          %y: float32[4] = abs(%a)
        }
        """,
        """
        graph @g(%x: float32[4]) -> (%y) {
          %y: float32[4] = abs(%x)
        }
        """,
    )


def test_other_operators_stay() -> None:
    check_declined(
        simplify_inference,
        """
        graph @g(%x: float32[4]) -> (%y) {
          %y: float32[4] = abs(%x)
        }
        """,
    )


def test_type_rules() -> None:
    image, channels = TensorType(DType.FLOAT32, (1, 3, 2)), TensorType(DType.FLOAT32, (2,))
    with pytest.raises(TypeRuleError, match="gamma must be"):
        BatchNorm(1, 0.0).infer(image, channels, channels, channels, channels)
    with pytest.raises(TypeRuleError, match="axis must be in"):
        BatchNorm(3, 0.0).infer(image, channels, channels, channels, channels)
    with pytest.raises(TypeRuleError, match="beta must be"):
        LayerNorm(2, 0.0).infer(image, channels, TensorType(DType.FLOAT32, (3,)))
    with pytest.raises(TypeRuleError, match="rate must be in"):
        Dropout(1.0).infer(image)


def test_one_function_only() -> None:
    text = """
        graph @g(%x: float32[2]) -> (%y) {
          %p: float32[2] = call(%x) {body="f", composite="", compiler="", stateful=false}
          %y: float32[2] = dropout(%p) {rate=0.5}
          subgraph @f = graph @f(%x: float32[2]) -> (%y) {
            %y: float32[2] = dropout(%x) {rate=0.5}
          }
        }
        """
    graph = parse(dedent(text))

    def left(func_name: str) -> list[int]:
        result = SimplifyInference(func_name=func_name)(graph)
        return [len(result.nodes) - 1, len(result.subgraphs["f"].nodes)]

    assert [left(""), left("g"), left("f")] == [[0, 0], [0, 1], [1, 0]]
    with pytest.raises(InputError, match="there is no function h; the model has g, f"):
        left("h")
