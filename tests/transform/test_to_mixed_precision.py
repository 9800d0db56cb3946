"""Products in float16, on request."""

from __future__ import annotations

import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import UnsupportedModelError
from microfold.ir.text import parse
from microfold.ir.types import DType
from microfold.passes import PassContext
from microfold.transform.canonicalize_cast import canonicalize_cast
from microfold.transform.to_mixed_precision import to_mixed_precision
from tests.evaluation import assert_same_meaning
from tests.transform.check import check_declined, check_rewrite

RELAXED = PassContext(numerics="relaxed")
LAYERS = """
    graph @g(%x: float32[1,2]) -> (%y) {
      %w = constant float32[2,2] [1.0, 2.0, 3.0, 0.1]
      %a: float32[1,2] = fully_connected(%x, %w)
      %y: float32[1,2] = fully_connected(%a, %w)
    }
    """


def test_layers() -> None:
    check_rewrite(
        to_mixed_precision,
        LAYERS,
        """
        graph @g(%x: float32[1,2]) -> (%y) {
          %x_half: float16[1,2] = cast(%x) {dtype=float16}
          %w = constant float16[2,2] [1.0, 2.0, 3.0, 0.1]
          %a_half: float16[1,2] = fully_connected(%x_half, %w)
          %a: float32[1,2] = cast(%a_half) {dtype=float32}
          %a_half#1: float16[1,2] = cast(%a) {dtype=float16}
          %w#1 = constant float16[2,2] [1.0, 2.0, 3.0, 0.1]
          %y_half: float16[1,2] = fully_connected(%a_half#1, %w#1)
          %y: float32[1,2] = cast(%y_half) {dtype=float32}
        }
        """,
        RELAXED,
        tolerance=2e-3,
    )


def test_no_casts_between_layers() -> None:
    graph = canonicalize_cast(to_mixed_precision(parse(LAYERS), RELAXED))
    assert [node.op.name for node in graph.nodes] == ["cast", "fully_connected", "fully_connected", "cast"]


@pytest.mark.parametrize(
    ("product", "shape"),
    [
        (
            "conv2d(%x, %w, %b) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}",
            "2,2,1,2",
        ),
        (
            "depthwise_conv2d(%x, %w, %b) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}",
            "1,2,2,2",
        ),
        ("batch_matmul(%x, %w) {transpose_first=false, transpose_second=true}", "1,1,4,2"),
    ],
)
def test_other_products(product: str, shape: str) -> None:
    out = {"conv2d": "1,2,3,2", "depthwi": "1,2,2,2", "batch_m": "1,3,3,4"}[product[:7].rstrip("(%")]
    before = parse(
        f"""
        graph @g(%x: float32[1,3,3,2]) -> (%y) {{
          %w = constant float32[{shape}] [1.0, -2.0, 3.0, 0.1, 0.2, 0.3, 0.4, 0.5]
          %b = constant float32[2] [0.5, 0.25]
          %y: float32[{out}] = {product}
        }}
        """
    )
    after = to_mixed_precision(before, RELAXED)
    assert after.nodes[1].output.type.dtype is DType.FLOAT16
    assert_same_meaning(before, after, tolerance=2e-3)


def test_nothing_builds_it() -> None:
    """When a kernel does, say so in the pass, and put it in the pipeline."""
    with pytest.raises(UnsupportedModelError, match="float16"):
        compile_graph(to_mixed_precision(parse(LAYERS), RELAXED), target.load("cortex-m55"))


def test_exact_numerics() -> None:
    check_declined(to_mixed_precision, LAYERS, "numerics must be relaxed")


def test_weights_beyond_the_range() -> None:
    decisions = []
    graph = parse(LAYERS.replace("0.1]", "70000.0]"))
    assert to_mixed_precision(graph, PassContext(numerics="relaxed", sink=decisions.append)) is graph
    assert all("beyond float16" in decision.reason for decision in decisions)
