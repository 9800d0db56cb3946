"""Patches of SMLAD convolutions: the inputs of one output pixel, as pairs of int16.

A segment is one row of the window, which is contiguous in the image. `smlad.pair_order` pairs the inputs of
a segment. If their number is odd, the last input is half a pair.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.conv2d.portable import conv_types
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import smlad

# Longest segment, in bytes, that fully unrolled code widens.
WRITTEN_SEGMENT = 16
# Largest number of window rows that share pairs of their last inputs.
JOINED_ROWS = 5
# Smallest number of output channels with which shared pairs save more time than they cost.
JOINED_CHANNELS = 8


def count_segments(layer: LayerContext) -> tuple[int, int]:
    """Return the number of segments of a patch, and their length in inputs."""
    x, _, _, window = conv_types(layer)
    return window.size[0], window.size[1] * x.shape[3]


def count_pairs(layer: LayerContext) -> int:
    """Return the pairs of inputs of a patch if no pair spans two rows of the window."""
    segments, segment = count_segments(layer)
    return segments * smlad.pair_order(segment).shape[0]


def joins_rows(layer: LayerContext) -> bool:
    """Return whether the last inputs of two window rows form one pair, if each of them is half a pair.

    Only the fully unrolled widening code supports it, and becomes longer.
    """
    segments, segment = count_segments(layer)
    few = 1 < segments <= JOINED_ROWS and segment <= WRITTEN_SEGMENT
    pays = conv_types(layer)[2].shape[3] >= JOINED_CHANNELS and not layer.compiled_for_size
    return few and segment % 2 == 1 and pays


def patch_pairs(layer: LayerContext) -> int:
    """Return the pairs of inputs of a patch in `Conv2DDsp`."""
    return count_pairs(layer) - (count_segments(layer)[0] // 2 if joins_rows(layer) else 0)


def patch_lanes(layer: LayerContext, matrix: Array) -> Array:
    """Reorder weights [channels, K] to [channels, pairs, 2], in the order of a patch."""
    segments, segment = count_segments(layer)
    lanes = smlad.pair_lanes(matrix, segment)
    if not joins_rows(layer):
        return lanes
    # The last input of every second row completes the last pair of the row before.
    lanes = lanes.reshape(len(matrix), segments, -1, 2)
    lanes[:, : segments // 2 * 2 : 2, -1, 1] = lanes[:, 1::2, -1, 0]
    kept = np.ones(lanes.shape[1:3], np.bool_)
    kept[1::2, -1] = False
    return lanes[:, kept]
