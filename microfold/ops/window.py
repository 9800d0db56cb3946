"""Geometry of windows that slide over height and width (NHWC)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from microfold.errors import TypeRuleError
from microfold.ir.limits import MAX_ELEMENTS
from microfold.ir.op import require
from microfold.ir.types import Array, TensorType

BLOCK_ELEMENTS = 1 << 23  # elements of windows that a reference copies at a time

Pair = tuple[int, int]
Padding = tuple[Pair, Pair]


class Window(Struct, frozen=True, dict=True):
    """Window of `size` that moves in steps of `strides` over a padded image; all pairs are (height, width).

    Attributes:
        padding: ((top, bottom), (left, right)), in elements.
    """

    size: Pair
    strides: Pair
    dilations: Pair
    padding: Padding

    @cached_property
    def extent(self) -> Pair:
        """Rows and columns that a dilated window spans."""
        height, width = ((s - 1) * d + 1 for s, d in zip(self.size, self.dilations, strict=True))
        return height, width

    def output_size(self, height: int, width: int) -> Pair:
        """Return the number of positions of the window over an image, vertically and horizontally.

        Raises:
            TypeRuleError: the window does not fit in the padded image.
        """
        # Messages are formatted only on error, because this function is called very often.
        if min(*self.size, *self.strides, *self.dilations) < 1:
            raise TypeRuleError(f"{self}: sizes must be positive")
        if min(self.padding[0] + self.padding[1]) < 0:
            raise TypeRuleError(f"{self}: padding must not be negative")
        padded = (height + sum(self.padding[0]), width + sum(self.padding[1]))
        spans = [p - e for p, e in zip(padded, self.extent, strict=True)]
        require(min(spans) >= 0, f"window {self.extent} must fit in the padded image {padded}")
        rows, columns = (span // stride + 1 for span, stride in zip(spans, self.strides, strict=True))
        return rows, columns

    def check(self, image: TensorType) -> None:
        """Check the type rule of all operators that slide a window over an NHWC image.

        No index may exceed `MAX_ELEMENTS`. The window's last step can lead out of the padded image, so the
        area that the window sweeps counts.

        Raises:
            TypeRuleError: the window does not fit in the padded image, or that area is too large.
        """
        batch, height, width, channels = image.shape
        counts = self.output_size(height, width)
        padded = (height + sum(self.padding[0]), width + sum(self.padding[1]))
        swept = [
            max(n, count * stride, size * dilation)
            for n, count, stride, size, dilation in zip(
                padded, counts, self.strides, self.size, self.dilations, strict=True
            )
        ]
        elements = batch * channels * max(swept[0] * padded[1], padded[0] * swept[1])
        require(
            elements <= MAX_ELEMENTS,
            f"a window can cover at most {MAX_ELEMENTS} elements of its padded image; {self.size} with "
            f"strides {self.strides}, dilations {self.dilations} and padding {self.padding} covers "
            f"{elements}",
        )

    def positions_inside(self, height: int, width: int) -> int:
        """Return the number of positions over an image at which the whole window is inside."""
        count = 1
        outputs = self.output_size(height, width)
        for i, size in enumerate((height, width)):
            before, stride = self.padding[i][0], self.strides[i]
            last = min((size - self.extent[i] + before) // stride, outputs[i] - 1)
            count *= max(last + 1 - -(-before // stride), 0)
        return count

    def blocks(self, patches: Array) -> Iterator[tuple[slice, slice, slice]]:
        """Yield images, rows and columns to process together, so that a copy of their windows stays small."""
        batch, rows, columns, *window = patches.shape
        size = batch * math.prod(window)
        across = min(columns, max(1, BLOCK_ELEMENTS // max(size, 1)))
        down = min(rows, max(1, BLOCK_ELEMENTS // max(size * columns, 1)))
        for row in range(0, rows, down):
            for column in range(0, columns, across):
                yield slice(None), slice(row, row + down), slice(column, column + across)

    def patches(self, image: Array, fill: Any) -> Array:
        """Return a view of all windows: [N, OH, OW, C, KH, KW] over an NHWC image padded with `fill`."""
        top_bottom, left_right = self.padding
        padded = np.pad(image, ((0, 0), top_bottom, left_right, (0, 0)), constant_values=fill)
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.extent, axis=(1, 2))
        return windows[
            :, :: self.strides[0], :: self.strides[1], :, :: self.dilations[0], :: self.dilations[1]
        ]


def same_padding(size: int, extent: int, stride: int) -> Pair:
    """Return TensorFlow's SAME padding: output ``ceil(size / stride)``, an odd element at the end."""
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + extent - size, 0)
    return total // 2, total - total // 2
