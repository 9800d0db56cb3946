"""Resizing of images to the nearest neighbour."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.ir.layout import NHWC
from microfold.ir.limits import MAX_RESIZED
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, Tensor, TensorType
from microfold.ops.image import from_nhwc, from_nhwc_type, nhwc_type, to_nhwc
from microfold.ops.window import Pair


def check_resize(
    op: str, x: TensorType, size: Pair, align_corners: bool, half_pixel_centers: bool, layout: str
) -> TensorType:
    """Check the type rule that resizing operators share, and return the type of the result."""
    x = nhwc_type(op, x, layout)
    require(min(*size, *x.shape) >= 1, f"{op}: sizes must be positive; they are {x} and {size}")
    require(
        max(size) <= MAX_RESIZED,
        f"{op}: height and width can be at most {MAX_RESIZED}; they are {size[0]} and {size[1]}",
    )
    require(
        not (align_corners and half_pixel_centers),
        f"{op}: align_corners cannot be combined with half_pixel_centers",
    )
    return from_nhwc_type(op, x.with_shape((x.shape[0], *size, x.shape[3])), layout)


@register
class ResizeNearestNeighbor(Op, frozen=True):
    """Image in `layout` resized to `size` (height, width); each pixel is a copy of an input pixel."""

    name: ClassVar[str] = "resize_nearest_neighbor"
    pattern: ClassVar[Pattern] = Pattern.INJECTIVE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    size: Pair
    align_corners: bool
    half_pixel_centers: bool
    layout: str = NHWC

    def infer(self, x: TensorType) -> TensorType:
        return check_resize(self.name, x, self.size, self.align_corners, self.half_pixel_centers, self.layout)

    def sources(self, x: TensorType) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the source row of each output row and the source column of each output column, in NHWC."""
        rows, columns = (
            _sources(x.shape[i + 1], self.size[i], self.align_corners, self.half_pixel_centers)
            for i in range(2)
        )
        return rows, columns

    def reference(self, x: Tensor) -> Array:
        image = to_nhwc(x, self.layout)
        rows, columns = self.sources(image.type)
        return from_nhwc(image.data[:, list(rows)][:, :, list(columns)], self.layout)


@lru_cache(maxsize=64)  # bands of an image ask for the same columns row by row
def _sources(source: int, target: int, align_corners: bool, half_pixel_centers: bool) -> tuple[int, ...]:
    """Return the index of the source of each of `target` elements along one axis."""
    if align_corners and target > 1:
        scale = np.float32(source - 1) / np.float32(target - 1)
    else:
        scale = np.float32(source) / np.float32(target)
    offset = np.float32(0.5 if half_pixel_centers else 0.0)
    positions = (np.arange(target).astype(np.float32) + offset) * scale
    nearest = numerics.round_half_away_array(positions) if align_corners else np.floor(positions)
    return tuple(int(n) for n in np.clip(nearest, 0, source - 1))
