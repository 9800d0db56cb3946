"""Bounds of graphs from wherever they come: sizes, work, constants that are no numbers."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.compiler import compile_graph
from microfold.errors import GraphError, TypeRuleError
from microfold.ir import limits
from microfold.ir.domain import admit
from microfold.ir.graph import Graph, verify
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Value, make_node
from microfold.ir.text import parse
from microfold.ir.types import DType, ElementType, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.movement.resize_bilinear import ResizeBilinear
from microfold.ops.pool2d import MaxPool2D
from microfold.ops.window import Padding, Pair
from microfold.target import load

FLOAT = ElementType(DType.FLOAT32)
NO_PADDING: Padding = ((0, 0), (0, 0))
ONE: Pair = (1, 1)


def floats(*shape: int) -> TensorType:
    return TensorType(DType.FLOAT32, shape)


def refused(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        admit(parse(text))
    with pytest.raises(GraphError, match=message):  # and handed in from Python
        compile_graph(parse(text), load("host"))


@pytest.mark.parametrize(
    ("type", "fault"),
    [
        ("int8[16777217]", "a tensor has at most 16777216 elements"),
        ("int8[2147483647,2147483647]", "a tensor has at most 16777216 elements"),
        ("int8[1,1,1,1,1,1,1,1,1]", "a tensor has at most 8 axes; it has 9"),
        ("int8[0]", "has no elements"),
    ],
)
def test_shapes(type: str, fault: str) -> None:
    refused(f"graph @g(%x: {type}) -> (%y) {{ %y: {type} = copy(%x) }}", fault)


def test_the_largest_tensor_compiles() -> None:
    type = "float32[16777216]"
    compile_graph(parse(f"graph @g(%x: {type}) -> (%y) {{ %y: {type} = add(%x, %x) }}"), load("cortex-m4"))


@pytest.mark.parametrize(
    ("size", "strides", "dilations", "padding"),
    [
        ((3, 3), ONE, (2**31 - 1, 1), ((2**31 - 1, 2**31 - 1), (1, 1))),
        ((3, 3), ONE, (1, 10**6), ((1, 1), (10**6, 10**6))),
        ((1, 1), (2**31 - 1, 1), ONE, NO_PADDING),
        ((1, 1), ONE, (2**31 - 1, 2**31 - 1), NO_PADDING),
        ((1, 1), ONE, ONE, ((10**6, 10**6), (0, 0))),
    ],
)
def test_windows(size: Pair, strides: Pair, dilations: Pair, padding: Padding) -> None:
    x = floats(1, 8, 8, 4)
    for op, filters in ((Conv2D, floats(2, *size, 4)), (DepthwiseConv2D, floats(1, *size, 4))):
        with pytest.raises(
            TypeRuleError, match=r"a window can cover at most 16777216 elements of its padded image"
        ):
            op(strides, dilations, padding, FLOAT).infer_all([x, filters])
    if dilations == ONE:
        with pytest.raises(TypeRuleError, match=r"a window can cover at most|padding must be smaller"):
            MaxPool2D(size, strides, padding).infer_all([x])


def test_windows_as_wide_as_the_bound() -> None:
    x, filters = floats(1, 8, 8, 4), floats(2, 3, 3, 4)
    op = Conv2D(ONE, (100_000, 1), ((100_000, 100_000), (1, 1)), FLOAT)
    assert op.infer_all([x, filters]) == (floats(1, 8, 8, 2),)


@pytest.mark.parametrize(
    "op",
    [
        TransposeConv2D((2**31 - 1, 1), (0, 0), (8, 8), FLOAT),
        TransposeConv2D(ONE, (2**30, 0), (8, 8), FLOAT),
        TransposeConv2D(ONE, (0, 0), (2**20, 2**20), FLOAT),
    ],
)
def test_transposed_convolutions(op: TransposeConv2D) -> None:
    with pytest.raises(TypeRuleError, match=r"the untrimmed result can have at most 16777216 elements"):
        op.infer_all([floats(1, 8, 8, 4), floats(2, 3, 3, 4)])


def test_resized_images() -> None:
    with pytest.raises(TypeRuleError, match=r"height and width can be at most 16384; they are 1 and 16385"):
        ResizeBilinear((1, 16385), False, False).infer_all([floats(1, 1, 2, 1)])


def test_work() -> None:
    refused(
        "graph @g(%x: float32[1,2000,2000,1]) -> (%y) {"
        " %y: float32[1,1001,1001,1] = max_pool2d(%x)"
        " {size=(1000, 1000), strides=(1, 1), padding=((0, 0), (0, 0))} }",
        r"node 0 \(max_pool2d\) can have at most 17179869184 operations; it has 10020\d{8}",
    )


def test_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microfold.ir.graph.MAX_NODES", 2)
    text = (
        "graph @g(%x: int8[1]) -> (%c) { %a: int8[1] = copy(%x)%b: int8[1] = copy(%a)%c: int8[1] = copy(%b) }"
    )
    with pytest.raises(GraphError, match="a graph can have at most 2 nodes; it has 3"):
        verify(parse(text))


@pytest.mark.parametrize("number", [2**31, -(2**31), 10**30])
def test_integers_of_attributes(number: int) -> None:
    with pytest.raises(TypeRuleError, match=r"max_pool2d: strides must be in \[-2147483647, 2147483647\]"):
        MaxPool2D(ONE, (1, number), NO_PADDING)


@pytest.mark.parametrize("number", [float("nan"), 1e39])
def test_floats_of_attributes(number: float) -> None:
    with pytest.raises(TypeRuleError, match=r"relu: minimum must be a finite float32; it is"):
        Relu(number, float("inf"), FLOAT)


def test_constants_that_hold_nan() -> None:
    refused(
        "graph @g(%x: float32[2]) -> (%y) {"
        " %k = constant float32[2] [1.0, nan] %y: float32[2] = add(%x, %k) }",
        "%k: a constant must not contain NaN; 1 of its elements are NaN",
    )


def test_infinite_constants() -> None:
    """A mask may be; a factor may not, nor what becomes one before the model runs."""
    mask = "%k = constant float32[2] [0.0, -inf]"
    admit(parse(f"graph @g(%x: float32[2]) -> (%y) {{ {mask} %y: float32[2] = add(%x, %k) }}"))
    refused(
        f"graph @g(%x: float32[2]) -> (%y) {{ {mask} %y: float32[2] = mul(%x, %k) }}",
        "%k: mul %y computes with it, so it must be finite; it is infinite",
    )
    refused(
        f"graph @g(%x: float32[1,2]) -> (%y) {{ {mask}"
        " %w: float32[1,2] = reshape(%k) {shape=(1, 2)}"
        " %y: float32[1,1] = fully_connected(%x, %w) }",
        "%w: fully_connected %y computes with it",
    )


def test_constants_that_are_too_large_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microfold.ir.domain.MAX_BYTES", 16)
    refused(
        "graph @g(%x: float32[5]) -> (%y) {"
        " %k = constant float32[5] [1, 2, 3, 4, 5] %y: float32[5] = add(%x, %k) }",
        "all constants can have at most 16 bytes; this is the largest of 20",
    )


def test_references_copy_windows_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the blocks are, the results are the same; two images, groups, both kinds of filters."""
    rng = np.random.default_rng(0)
    x = Value("x", floats(2, 9, 7, 4))
    window = (2, 1), (1, 2), ((1, 0), (2, 1)), FLOAT
    for op, filters in (
        (Conv2D(*window), floats(6, 3, 2, 2)),
        (DepthwiseConv2D(*window), floats(1, 3, 2, 8)),
    ):
        node = make_node(op, [x, Value("w", filters)], ["y"])
        graph = Graph("g", (x, node.operands[1]), node.outputs, (node,))
        arrays = [rng.integers(-9, 9, v.type.shape).astype(np.float32) for v in graph.inputs]
        results = []
        for elements in (1 << 23, 500, 1):
            monkeypatch.setattr("microfold.ops.window.BLOCK_ELEMENTS", elements)
            results.append(_run(graph, arrays))
        assert all(np.array_equal(results[0], result) for result in results)


def _run(graph: Graph, arrays: list[np.ndarray]) -> np.ndarray:
    return Interpreter(graph).run(*arrays)[0]


def test_bounds_leave_room_in_32_bits() -> None:
    widest = 8  # bytes of an element
    assert limits.MAX_ELEMENTS * widest < 1 << 31
    assert limits.MAX_BYTES < 1 << 31
