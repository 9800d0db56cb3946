"""Products in float16, on request."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.analysis.relaxation import Relaxation
from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.ir.graph import verify as verify_graph
from microfold.ir.interpret import Interpreter
from microfold.ir.text import parse
from microfold.ir.types import DType
from microfold.passes.context import Decision, PassContext
from microfold.transform.relaxed.to_mixed_precision import ToMixedPrecision, to_mixed_precision
from microfold.transform.simplify.canonicalize_cast import canonicalize_cast
from microfold.verification.verify import input_sets, verify
from tests.evaluation import assert_same_meaning
from tests.needs import CROSS_TOOLS, need_tools
from tests.transform.check import check_declined, check_rewrite

RELAXED = PassContext(numerics="relaxed", half_precision=True)
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


CONVOLUTIONS = """
    graph @g(%x: float32[1,3,3,2]) -> (%y) {
      %w = constant float32[2,1,1,2] [1.0, -2.0, 3.0, 0.1]
      %b = constant float32[2] [0.5, 0.25]
      %a: float32[1,3,3,2] = conv2d(%x, %w, %b) WINDOW
      %k = constant float32[1,2,2,2] [1.0, -2.0, 3.0, 0.1, 0.2, 0.3, 0.4, 0.5]
      %d: float32[1,2,2,2] = depthwise_conv2d(%a, %k) WINDOW
      %r: float32[1,2,2,2] = clip(%d) {minimum=0.0, maximum=6.0}
      %c = constant float32[2] [3.0, -0.5]
      %m: float32[1,2,2,2] = mul(%c, %r)
      %p: float32[1,1,1,2] = average_pool2d(%m) {size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))}
      %y: float32[1,1,1,2] = tanh(%p)
    }
    """.replace("WINDOW", "{strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}")


def test_what_follows_products() -> None:
    before = parse(CONVOLUTIONS)
    after = canonicalize_cast(to_mixed_precision(before, RELAXED))
    kinds = [(node.op.name, node.output.type.dtype) for node in after.nodes]
    assert kinds[0] == ("cast", DType.FLOAT16)
    assert kinds[-2:] == [("cast", DType.FLOAT32), ("tanh", DType.FLOAT32)]
    names = ["conv2d", "depthwise_conv2d", "clip", "mul", "average_pool2d"]
    assert kinds[1:-2] == [(name, DType.FLOAT16) for name in names]
    assert_same_meaning(before, after, tolerance=5e-3)


def test_the_report_is_told() -> None:
    decisions: list[Decision] = []
    to_mixed_precision(parse(LAYERS), replace(RELAXED, sink=decisions.append))
    evidence = [decision.evidence for decision in decisions]
    assert [item.where for item in evidence if isinstance(item, Relaxation)] == [
        "fully_connected %a",
        "fully_connected %y",
    ]


def test_elementwise_operators_alone_stay() -> None:
    check_declined(
        to_mixed_precision,
        """
        graph @g(%x: float32[2], %y: float32[2]) -> (%z) {
          %z: float32[2] = add(%x, %y)
        }
        """,
        context=RELAXED,
    )


LARGE = "(9, 9), strides=(2, 2), padding=((4, 4), (4, 4))"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("float32[2,1,1,2] [1.0, -2.0, 3.0, 0.1]", "float32[2,1,1,1] [1.0, 2.0]"), "in groups"),
        (("(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))", LARGE), "more than 64"),
    ],
)
def test_what_has_no_fast_kernel(change: tuple[str, str], reason: str) -> None:
    decisions: list[Decision] = []
    to_mixed_precision(parse(CONVOLUTIONS.replace(*change)), replace(RELAXED, sink=decisions.append))
    assert any(reason in decision.reason for decision in decisions if not decision.fired)


def test_targets_without_such_arithmetic() -> None:
    context = PassContext(numerics="relaxed")
    check_declined(to_mixed_precision, LAYERS, "the target does not compute float16 faster", context)


@pytest.mark.parametrize("core", ["host", pytest.param("cortex-m55", marks=pytest.mark.slow)])
def test_it_is_built(core: str) -> None:
    """Also for targets that convert at each load and store."""
    if core != "host":
        need_tools(*CROSS_TOOLS)
    graph = canonicalize_cast(to_mixed_precision(parse(CONVOLUTIONS), RELAXED))
    program = compile_graph(graph, target.load(core))
    result = verify(program, input_sets([buffer.type for buffer in program.inputs], 6))
    assert result.exact, result.first_difference


def test_exact_numerics() -> None:
    context = PassContext(half_precision=True)
    check_declined(to_mixed_precision, LAYERS, "numerics must be relaxed", context)


def test_weights_beyond_the_range() -> None:
    decisions: list[Decision] = []
    graph = parse(LAYERS.replace("0.1]", "70000.0]"))
    assert to_mixed_precision(graph, replace(RELAXED, sink=decisions.append)) is graph
    assert all("beyond float16" in decision.reason for decision in decisions)


def test_operators_behind_products_in_float32() -> None:
    text = """
        graph @g(%x: float32[1,2]) -> (%y) {
          %w = constant float32[2,2] [1.0, 2.0, 3.0, 0.1]
          %a: float32[1,2] = fully_connected(%x, %w)
          %y: float32[1,2] = add(%a, %a)
        }
        """
    graph = parse(text)
    half = canonicalize_cast(to_mixed_precision(graph, RELAXED))
    single = canonicalize_cast(ToMixedPrecision(out_dtype="float32")(graph, RELAXED))
    assert [str(node.output.type) for node in half.nodes][-2:] == ["float16[1,2]", "float32[1,2]"]
    assert [node.op.name for node in single.nodes] == ["cast", "fully_connected", "cast", "add"]
    assert_same_meaning(graph, single, tolerance=2e-3)
    with pytest.raises(
        InputError, match="out_dtype of to_mixed_precision must be float16 or float32; it is 'bfloat16'"
    ):
        ToMixedPrecision(out_dtype="bfloat16")(graph, RELAXED)  # type: ignore[arg-type]


def test_inputs_in_float16() -> None:
    step = ToMixedPrecision(fp16_input_names=("x",))
    graph = canonicalize_cast(step(parse(LAYERS), RELAXED))
    verify_graph(graph)
    assert str(graph.inputs[0].type) == "float16[1,2]"
    assert [node.op.name for node in graph.nodes] == ["fully_connected", "fully_connected", "cast"]
    x = np.array([[0.5, -3.0]], np.float32)
    (wide,), (narrow,) = Interpreter(parse(LAYERS)).run(x), Interpreter(graph).run(x.astype(np.float16))
    np.testing.assert_allclose(narrow, wide, rtol=2e-3)
    assert step(graph, RELAXED) is graph
    check_declined(step, LAYERS, "numerics must be relaxed")
    with pytest.raises(InputError, match="unknown float input z; float inputs: x"):
        ToMixedPrecision(fp16_input_names=("z",))(parse(LAYERS), RELAXED)
