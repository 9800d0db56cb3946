"""The inputs of one output of a convolution, as SMLAD takes them: pairs of int16.

Each row of a window that is contiguous in the image is a segment. Pairs are those of `smlad.pair_order`; the
last input of an odd number is half a pair.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.conv2d.portable import conv_types
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import smlad

# Segments up to this many bytes are widened by code of their own.
WRITTEN_SEGMENT = 16
# Windows of up to so many rows share pairs of their last inputs.
JOINED_ROWS = 5
# Fewer output channels save less than it takes to complete pairs.
JOINED_CHANNELS = 8


def count_segments(layer: LayerContext) -> tuple[int, int]:
    """How many contiguous runs of inputs a patch has, and their length."""
    x, _, _, window = conv_types(layer)
    return window.size[0], window.size[1] * x.shape[3]


def count_pairs(layer: LayerContext) -> int:
    """Pairs of inputs of a patch."""
    segments, segment = count_segments(layer)
    return segments * smlad.pair_order(segment).shape[0]


def joins_rows(layer: LayerContext) -> bool:
    """The last inputs of two rows of a window, each of which would be half a pair, are one.

    That is for segments that are widened by code of their own, which is longer.
    """
    segments, segment = count_segments(layer)
    few = 1 < segments <= JOINED_ROWS and segment <= WRITTEN_SEGMENT
    pays = conv_types(layer)[2].shape[3] >= JOINED_CHANNELS and not layer.compiled_for_size
    return few and segment % 2 == 1 and pays


def patch_pairs(layer: LayerContext) -> int:
    """Pairs of inputs of a patch, as `Conv2DDsp` has them."""
    return count_pairs(layer) - (count_segments(layer)[0] // 2 if joins_rows(layer) else 0)


def patch_lanes(layer: LayerContext, matrix: Array) -> Array:
    """Weights [channels, K] as [channels, pairs, 2], in the order of a patch."""
    segments, segment = count_segments(layer)
    lanes = smlad.pair_lanes(matrix, segment)
    if not joins_rows(layer):
        return lanes
    # The last pair of every second row is in the one before.
    lanes = lanes.reshape(len(matrix), segments, -1, 2)
    lanes[:, : segments // 2 * 2 : 2, -1, 1] = lanes[:, 1::2, -1, 0]
    kept = np.ones(lanes.shape[1:3], np.bool_)
    kept[1::2, -1] = False
    return lanes[:, kept]
