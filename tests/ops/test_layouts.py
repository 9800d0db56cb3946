"""Operators over images mean the same in every layout."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import TypeRuleError
from microfold.ir import layout as layouts
from microfold.ir.op import Op
from microfold.ir.text import parse, to_text
from microfold.ir.types import DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.image import with_layout
from microfold.ops.movement.layout_transform import LayoutTransform
from microfold.ops.movement.resize_bilinear import ResizeBilinear
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from tests.evaluation import random_array

X = TensorType(DType.INT8, (1, 5, 6, 4), Quant.per_tensor(0.5, 3))
OUT = ElementType(DType.INT8, Quant.per_tensor(2.0, -7))
NO_PADDING = ((0, 0), (0, 0))
OPS: list[tuple[Op, tuple[int, ...]]] = [
    (Conv2D((2, 1), (1, 2), ((1, 0), (0, 1)), OUT), (8, 3, 2, 4)),
    (Conv2D((1, 1), (1, 1), NO_PADDING, OUT), (4, 2, 2, 2)),
    (DepthwiseConv2D((1, 2), (1, 1), ((1, 1), (0, 0)), OUT), (1, 3, 2, 8)),
    (TransposeConv2D((2, 2), (0, 1), (9, 11), OUT), (4, 3, 2, 4)),
    (AveragePool2D((3, 2), (1, 2), ((1, 0), (0, 1))), ()),
    (MaxPool2D((3, 2), (1, 2), ((1, 0), (0, 1))), ()),
    (ResizeBilinear((7, 4), False, True), ()),
    (ResizeNearestNeighbor((7, 4), True, False), ()),
]


@pytest.mark.parametrize("layout", ["NCHW", "CHWN", "NCHW4c", "NCHW2c", "HWNC4c"])
@pytest.mark.parametrize(("op", "filters"), OPS, ids=lambda x: getattr(x, "name", str(x)))
def test_every_layout(op: Op, filters: tuple[int, ...], layout: str) -> None:
    rng = np.random.default_rng(0)
    operands = [Tensor(t, random_array(rng, t)) for t in _filters(filters)]
    image = Tensor(X, random_array(rng, X))
    (expected,) = op.evaluate([image, *operands])
    there = layouts.between("NHWC", layout, X.shape)
    moved = Tensor(X.with_shape(there.shape), there.apply(image.data))
    (given,) = with_layout(op, layout).evaluate([moved, *operands])
    back = layouts.between(layout, "NHWC", given.type.shape)
    assert back.shape == expected.type.shape
    np.testing.assert_array_equal(back.apply(given.data), expected.data)
    types = [operand.type for operand in operands]
    assert with_layout(op, layout).macs(moved.type, *types) == op.macs(X, *types)


def _filters(shape: tuple[int, ...]) -> list[TensorType]:
    return [TensorType(DType.INT8, shape, Quant.per_tensor(0.1, 0))] if shape else []


def test_text_shows_other_layouts_only() -> None:
    text = """graph @g(%x: float32[1,2,4,4,4]) -> (%y) {
  %a: float32[1,2,2,2,4] = max_pool2d(%x) {size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0)), layout="NCHW4c"}
  %b: float32[1,2,2,8] = layout_transform(%a) {source="NCHW4c", target="NHWC"}
  %y: float32[1,1,1,8] = max_pool2d(%b) {size=(2, 2), strides=(2, 2), padding=((0, 0), (0, 0))}
}
"""  # noqa: E501
    assert to_text(parse(text)) == text


@pytest.mark.parametrize(
    ("op", "shape", "reason"),
    [
        (MaxPool2D((1, 1), (1, 1), NO_PADDING, "NCHW4c"), (1, 4, 4, 8), "in layout NCHW4c must have rank 5"),
        (MaxPool2D((1, 1), (1, 1), NO_PADDING, "HWC"), (4, 4, 8), "axes N, H, W and C"),
        (MaxPool2D((1, 1), (1, 1), NO_PADDING), (4, 4, 8), "in layout NHWC must have rank 4"),
        (LayoutTransform("NHWC", "NCHW4c"), (1, 4, 4, 6), "axis C must be divisible"),
    ],
)
def test_refusals_name_the_operator(op: Op, shape: tuple[int, ...], reason: str) -> None:
    with pytest.raises(TypeRuleError, match=rf"^{op.name}: .*{reason}"):
        op.infer(TensorType(DType.FLOAT32, shape))
