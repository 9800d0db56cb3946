from __future__ import annotations

from textwrap import dedent

import numpy as np
from hypothesis import HealthCheck, given, settings

import microfold.ops  # noqa: F401  (makes the operators' names known)
from microfold.analysis.element_ranges import element_ranges
from microfold.analysis.interval import Range
from microfold.analysis.ranges import Ranges, analyze
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Node
from microfold.ir.text import parse
from microfold.ir.types import Tensor
from tests.analysis.networks import networks
from tests.evaluation import random_array

thorough = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=75)


def ranges_of(text: str) -> tuple[Graph, Ranges]:
    graph = parse(dedent(text))
    return graph, analyze(graph)


def output_range(text: str) -> list[tuple[int, int]]:
    graph, ranges = ranges_of(text)
    found = ranges.values[graph.outputs[0]]
    return list(zip(found.low.tolist(), found.high.tolist(), strict=True))


def rows(value: np.ndarray) -> np.ndarray:
    return value.reshape(-1, value.shape[-1] if value.ndim else 1).astype(np.int64)


@thorough
@given(graph=networks())
def test_every_element_is_in_its_range(graph: Graph) -> None:
    ranges = analyze(graph)
    rng = np.random.default_rng(1)
    interpreter = Interpreter(graph)

    def check(node: Node, results: tuple[Tensor, ...]) -> None:
        for value, tensor in zip(node.outputs, results, strict=True):
            found, data = ranges.values[value], rows(tensor.data)
            assert (data >= found.low).all(), (value, node.op)
            assert (data <= found.high).all(), (value, node.op)

    low, high = graph.inputs[0].type.dtype.range
    for extreme in (low, high, None):
        for _ in range(1 if extreme is not None else 3):
            arrays = [random_array(rng, value.type) for value in graph.inputs]
            interpreter.run(
                *(a if extreme is None else np.full_like(a, extreme) for a in arrays), observe=check
            )


@thorough
@given(graph=networks())
def test_elements_are_never_wider_than_their_channel(graph: Graph) -> None:
    """Two analyses that share no code but the reference's; the finer one must be inside the other."""
    ranges, elements = analyze(graph), element_ranges(graph)
    for node in graph.nodes:
        for value in node.outputs:
            found = ranges.values[value]
            assert (rows(elements[value].low) >= found.low).all(), node.op
            assert (rows(elements[value].high) <= found.high).all(), node.op


def test_convolution_is_exact() -> None:
    """All corners of the input are tried; the range is what they reach."""
    text = """
        graph @g(%x: int8[1,1,1,3] q(0.1, 3)) -> (%y) {
          %w = constant int8[2,1,1,3] q(0.02, 0) [1, -2, 3, 0, 5, 0]
          %b = constant int32[2] [10, -700]
          %y: int8[1,1,1,2] q(0.05, -5) = conv2d(%x, %w, %b) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}
        }
        """  # noqa: E501
    graph = parse(dedent(text))
    interpreter = Interpreter(graph)
    corners = np.array(np.meshgrid(*[[-128, 127]] * 3)).reshape(3, -1).T
    images = corners.astype(np.int8).reshape(-1, 1, 1, 1, 3)
    reached = np.array([interpreter.run(image)[0].reshape(2) for image in images])
    expected = list(zip(reached.min(axis=0).tolist(), reached.max(axis=0).tolist(), strict=True))
    assert output_range(text) == expected


def padded(zero_point: int, value: int, weights: str) -> str:
    """A clip fixes the input's value; the window is padded on all sides."""
    real = 0.1 * (value - zero_point)
    return f"""
        graph @g(%x: int8[1,4,4,1] q(0.1, {zero_point})) -> (%y) {{
          %a: int8[1,4,4,1] q(0.1, {zero_point}) = clip(%x) {{minimum={real}, maximum={real}}}
          %w = constant int8[1,3,3,1] q(0.1, 0) {weights}
          %y: int8[1,4,4,1] q(0.1, 0) = depthwise_conv2d(%a, %w) {{strides=(1, 1), dilations=(1, 1), padding=((1, 1), (1, 1))}}
        }}
        """  # noqa: E501


def test_border_positions() -> None:
    ones = "[1, 1, 1, 1, 1, 1, 1, 1, 1]"
    assert output_range(padded(-128, -128, ones)) == [(0, 0)]
    # 4 taps in the corners, 9 inside: 4 * 100 * 0.1 and 9 * 100 * 0.1.
    assert output_range(padded(-128, -28, ones)) == [(40, 90)]
    # The only weight is at the centre, which is never outside.
    assert output_range(padded(-128, -28, "[0, 0, 0, 0, 7, 0, 0, 0, 0]")) == [(70, 70)]


def test_windows_that_never_meet_the_border() -> None:
    """Padding that no window reaches counts for nothing: a stride of 2 leaves the last column out."""
    text = """
        graph @g(%x: int8[1,1,3,1] q(0.1, 0)) -> (%y) {
          %a: int8[1,1,3,1] q(0.1, 0) = clip(%x) {minimum=5.0, maximum=5.0}
          %w = constant int8[1,1,3,1] q(0.1, 0) [1, 1, 1]
          %y: int8[1,1,1,1] q(0.1, 0) = depthwise_conv2d(%a, %w) {strides=(1, 2), dilations=(1, 1), padding=((0, 0), (0, 1))}
        }
        """  # noqa: E501
    assert output_range(text) == [(15, 15)]


def test_overflow_is_not_reasoned_through() -> None:
    """The bias alone is at the end of int32: a sum above it wraps round, and anything may come out."""
    text = """
        graph @g(%x: int8[1,1,1,1] q(0.1, 0)) -> (%y) {
          %w = constant int8[2,1,1,1] q(0.1, 0) [1, 1]
          %b = constant int32[2] [2147483647, 2147480000]
          %y: int8[1,1,1,2] q(0.1, 0) = conv2d(%x, %w, %b) {strides=(1, 1), dilations=(1, 1), padding=((0, 0), (0, 0))}
        }
        """  # noqa: E501
    assert output_range(text) == [(-128, 127), (127, 127)]
    graph, ranges = ranges_of(text)
    assert ranges.accumulators[graph.nodes[0]].high.tolist() == [2147483647 + 127, 2147480000 + 127]


def test_channels_of_a_flattened_image() -> None:
    text = """
        graph @g(%x: int8[1,2,1,2] q(0.1, 0)) -> (%y) {
          %c = constant int8[2] q(0.1, 0) [10, -20]
          %a: int8[1,2,1,2] q(0.1, 0) = maximum(%x, %c)
          %y: int8[1,4] q(0.1, 0) = reshape(%a) {shape=(1, 4)}
        }
        """
    assert output_range(text) == [(10, 127), (-20, 127), (10, 127), (-20, 127)]


def test_partial_sums_bound_every_order() -> None:
    rng = np.random.default_rng(0)
    text = """
        graph @g(%x: int8[1,6] q(0.1, 9)) -> (%y) {
          %w = constant int8[1,6] q(0.1, 0) [100, -100, 100, -100, 7, -128]
          %b = constant int32[1] [-5000]
          %y: int8[1,1] q(0.1, 0) = fully_connected(%x, %w, %b)
        }
        """
    graph, ranges = ranges_of(text)
    bound = int(ranges.accumulators[graph.nodes[0]].partial[0])
    weights = graph.constants[graph.nodes[0].inputs[1]].astype(np.int64).reshape(-1)  # type: ignore[index]
    for _ in range(200):
        x = rng.choice([-128, 127], 6)
        order = rng.permutation(6)
        centred = -5000 + np.cumsum((weights * (x - 9))[order])
        raw = -5000 - 9 * weights.sum() + np.cumsum((weights * x)[order])
        assert np.abs(centred).max() <= bound
        assert np.abs(raw).max() <= bound


def test_floats_have_no_range() -> None:
    graph, ranges = ranges_of("graph @g(%x: float32[2]) -> (%y) {\n  %y: float32[2] = add(%x, %x)\n}\n")
    assert graph.outputs[0] not in ranges.values


def test_hull() -> None:
    found = Range(np.array([3, -4]), np.array([5, -4]))
    assert found.hull == (-4, 5)
    assert found.constant.tolist() == [False, True]


def test_slices_and_concatenations_keep_channels_apart() -> None:
    found = output_range(
        """\
        graph @g(%x: int8[1,2,3] q(0.1, 0)) -> (%y) {
          %c = constant int8[1,1,3] q(0.1, 0) [1, -5, 7]
          %m: int8[1,2,3] q(0.1, 0) = minimum(%x, %c)
          %s: int8[1,1,2] q(0.1, 0) = strided_slice(%m) {begin=(0, 1, 2), size=(1, 1, 2), strides=(1, 1, -2)}
          %v: int8[1,1,3] q(0.1, 0) = slice_view(%m) {begin=(0, 1, 0), size=(1, 1, 3)}
          %y: int8[1,1,5] q(0.1, 0) = concatenate_view(%s, %v) {axis=2}
        }
        """
    )
    assert found == [(-128, 7), (-128, 1), (-128, 1), (-128, -5), (-128, 7)]
