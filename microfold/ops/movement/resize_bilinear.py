"""Resizing of images by bilinear interpolation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.layout import NHWC
from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.image import from_nhwc, to_nhwc
from microfold.ops.movement.resize_nearest_neighbor import check_resize
from microfold.ops.window import Pair

FRACTION_BITS = 10  # fraction bits of integer positions


@register
class ResizeBilinear(Op, frozen=True):
    """Image in `layout` resized to `size` (height, width), interpolated between four neighbours.

    For integers, positions have 10 fraction bits, and the weighted sum is rounded half away from zero. uint8
    is interpolated in float32 and rounded half up, as in LiteRT with the legacy quantisation.
    """

    name: ClassVar[str] = "resize_bilinear"

    size: Pair
    align_corners: bool
    half_pixel_centers: bool
    layout: str = NHWC

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype in (DType.UINT8, DType.INT8, DType.INT16, DType.FLOAT32),
            f"resize_bilinear: {x.dtype.value} is not supported",
        )
        return check_resize(self.name, x, self.size, self.align_corners, self.half_pixel_centers, self.layout)

    @staticmethod
    def is_floating(dtype: DType) -> bool:
        """Return whether elements of this type are interpolated in float32."""
        return dtype.is_float or dtype is DType.UINT8

    def integer_positions(self, source: int, target: int) -> tuple[Array, Array, Array]:
        """Return, along one axis, lower and upper source index, and the distance from the lower in 1/1024."""
        one = 1 << FRACTION_BITS
        if self.align_corners and target > 1:
            scale = (one * (source - 1) + (target - 1) // 2) // (target - 1)
        else:
            scale = (one * source + target // 2) // target
        position = np.arange(target, dtype=np.int64) * scale
        if self.half_pixel_centers:
            position = position + scale // 2 - one // 2
        truncated = np.where(position < 0, -(-position // one), position // one)
        lower = np.maximum(truncated, 0)
        above = position + one - 1
        upper = np.minimum(np.where(above < 0, -(-above // one), above // one), source - 1)
        return lower, upper, position - one * lower

    def float_positions(self, source: int, target: int) -> tuple[Array, Array, Array]:
        """Return, along one axis, lower and upper source index, and the float32 distance from the lower."""
        if self.align_corners and target > 1:
            scale = np.float32(source - 1) / np.float32(target - 1)
        else:
            scale = np.float32(source) / np.float32(target)
        half = np.float32(0.5)
        position = np.arange(target).astype(np.float32)
        position = (position + half) * scale - half if self.half_pixel_centers else position * scale
        lower = np.maximum(np.floor(position).astype(np.int64), 0)
        upper = np.minimum(np.ceil(position).astype(np.int64), source - 1)
        return lower, upper, position - lower.astype(np.float32)

    def reference(self, x: Tensor) -> Array:
        x = to_nhwc(x, self.layout)
        floating = self.is_floating(x.type.dtype)
        positions = self.float_positions if floating else self.integer_positions
        data = x.data.astype(np.float32 if floating else np.int64)
        one = np.float32(1) if floating else np.int64(1 << FRACTION_BITS)
        top, bottom, down = positions(x.type.shape[1], self.size[0])
        left, right, along = positions(x.type.shape[2], self.size[1])
        down, along = down[:, None, None], along[:, None]
        total = (
            data[:, top][:, :, left] * (one - down) * (one - along)
            + data[:, bottom][:, :, left] * down * (one - along)
            + data[:, top][:, :, right] * (one - down) * along
            + data[:, bottom][:, :, right] * down * along
        )
        if floating:
            halves = np.float32(0 if x.type.dtype.is_float else 0.5)
            return from_nhwc((total + halves).astype(x.data.dtype), self.layout)
        half = 1 << (2 * FRACTION_BITS - 1)
        magnitude = (np.abs(total) + half) >> (2 * FRACTION_BITS)
        return from_nhwc((np.sign(total) * magnitude).astype(x.data.dtype), self.layout)
