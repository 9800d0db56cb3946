from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import TypeRuleError
from microfold.ir import layout as layouts


@pytest.mark.parametrize(
    ("source", "target", "shape", "result"),
    [
        ("NHWC", "NHWC", (1, 5, 6, 8), (1, 5, 6, 8)),
        ("NHWC", "NCHW", (1, 5, 6, 8), (1, 8, 5, 6)),
        ("NHWC", "NCHW4c", (1, 5, 6, 8), (1, 2, 5, 6, 4)),
        ("NCHW4c", "NHWC", (1, 2, 5, 6, 4), (1, 5, 6, 8)),
        ("NCHW4c", "NCHW8c", (1, 2, 5, 6, 4), (1, 1, 5, 6, 8)),
        ("NHWC", "NCHW4c", (1, 5, 6, 4), (1, 1, 5, 6, 4)),
        ("NHWC", "2nNHWC", (4, 5, 6, 3), (2, 2, 5, 6, 3)),
    ],
)
def test_there_and_back(source: str, target: str, shape: tuple[int, ...], result: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    there, back = layouts.between(source, target, shape), layouts.between(target, source, result)
    assert there.shape == result
    assert there.apply(array).shape == result
    np.testing.assert_array_equal(back.apply(there.apply(array)), array)


def test_a_block_holds_neighbouring_channels() -> None:
    pixels = np.arange(8).reshape(1, 1, 1, 8)
    blocked = layouts.between("NHWC", "NCHW4c", pixels.shape).apply(pixels)
    assert blocked[0, 1, 0, 0].tolist() == [4, 5, 6, 7]


def test_a_plain_change_is_a_transpose() -> None:
    assert layouts.permutation("NCHW", "NHWC") == (0, 2, 3, 1)
    assert layouts.permutation("NHWC", "NCHW") == (0, 3, 1, 2)


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ("nhwc", "not the outer one|upper-case"),
        ("NHW4", "a layout is a sequence of axes"),
        ("NCHW1c", "2 or more"),
        ("", "a layout is a sequence of axes"),
        ("NHWCC", "names each axis once"),
        ("NHW4c", "the inner part of axis C, but not the outer one"),
        ("NHC", "an image has the axes N, H, W and C"),
    ],
)
def test_what_is_no_layout_of_images(layout: str, reason: str) -> None:
    with pytest.raises(TypeRuleError, match=reason):
        layouts.check_image(layout)


@pytest.mark.parametrize(
    ("source", "target", "shape", "reason"),
    [
        ("NHWC", "NCHW4c", (1, 5, 6, 6), "axis C must be divisible into blocks of 4; it has 6"),
        ("NCHW4c", "NCHW6c", (1, 3, 5, 6, 4), "blocks of 4 and 6"),
        ("NCHW4c", "NHWC", (1, 3, 5, 6, 3), "the inner part of C must have 4 elements"),
        ("NHWC", "NCHW", (5, 6, 6), "must have rank 4"),
        ("NHWC", "NHW", (1, 5, 6, 6), "must have the same axes"),
    ],
)
def test_what_has_no_way(source: str, target: str, shape: tuple[int, ...], reason: str) -> None:
    with pytest.raises(TypeRuleError, match=reason):
        layouts.between(source, target, shape)


def test_a_transpose_does_not_divide() -> None:
    with pytest.raises(TypeRuleError, match="layout_transform"):
        layouts.permutation("NHWC", "NCHW4c")
