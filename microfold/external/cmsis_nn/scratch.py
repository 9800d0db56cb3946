"""Scratch memory of CMSIS-NN's functions in bytes, for every target and compiler.

The library returns these sizes at run time (``…_get_buffer_size``), but the planner needs them earlier.
The rules are from release 7.0.0, for the same architecture feature
(https://github.com/ARM-software/CMSIS-NN/tree/v7.0.0/Source/ConvolutionFunctions). If a size depends on the C
compiler, the larger one is used. The generated code also asks the library, and does not call a function that
needs more.
"""

from __future__ import annotations

from msgspec import Struct

from microfold.ops.window import Window
from microfold.target import Target

# Channels that a depthwise convolution with vectors processes at a time.
_DEPTHWISE_BLOCK = 124


class Geometry(Struct, frozen=True):
    """Geometry of a convolution: extents as (height, width), and its window."""

    image: tuple[int, int]
    channels: int
    output: tuple[int, int]
    filters: int
    window: Window


def convolution(shape: Geometry, target: Target) -> int:
    """Return the scratch size of ``arm_convolve_wrapper_s8``, in bytes."""
    size, window = shape.window.size, shape.window
    depth = size[0] * size[1] * shape.channels
    unpadded = (window.padding[0][0], window.padding[1][0]) == (0, 0)
    if unpadded and size == (1, 1) and window.dilations == (1, 1):
        fast = target.has("dsp") and not target.has("mve") and window.strides == (1, 1)
        return 4 * shape.channels if fast else 0
    if not target.has("mve"):
        return 4 * _up(depth, 4)
    columns = 4 * _up(depth, 16)
    return max(columns, _row_edges(shape)) if is_row(shape) else columns


def is_row(shape: Geometry) -> bool:
    """Return whether the library uses its special function for images of one row."""
    window = shape.window
    return (
        shape.image[0] == window.size[0] == window.dilations[1] == 1
        and window.strides[1] * shape.channels % 4 == 0
    )


def _row_edges(shape: Geometry) -> int:
    """Return the bytes for the padded end of a row: a window and its padding."""
    window = shape.window
    left = window.padding[1][0]
    total = (shape.output[1] - 1) * window.strides[1] + window.size[1] - shape.image[1]
    right = -(-(left + total % 2) // window.strides[1])
    return shape.channels * (window.size[1] + max(left, right, 1))


def depthwise_convolution(shape: Geometry, target: Target) -> int:
    """Return the scratch size of ``arm_depthwise_conv_wrapper_s8`` for one image, in bytes."""
    window = shape.window
    taps = window.size[0] * window.size[1]
    plain = shape.channels == shape.filters and window.dilations == (1, 1)
    if target.has("mve"):
        blocks = 4 * _DEPTHWISE_BLOCK * taps if plain else 0
        if shape.channels == 1 and shape.filters > 1:
            # The library may call a convolution, with rearranged filters after its scratch.
            return max(blocks, convolution(shape, target) + taps * shape.filters)
        return blocks
    small = window.size == (3, 3) and max(window.padding[0][0], window.padding[1][0]) <= 1
    return 2 * taps * shape.channels if target.has("dsp") and plain and not small else 0


def average_pooling(channels: int, target: Target) -> int:
    """Return the scratch size of ``arm_avgpool_s8``, in bytes."""
    return 4 * channels if target.has("dsp") and not target.has("mve") else 0


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
