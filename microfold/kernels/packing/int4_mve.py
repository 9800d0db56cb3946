"""Weights of four bits for Helium: two channels in a vector of bytes.

Shifted to the left by 4, bytes give 16 times the weights of the first channel. With those of the second one
they are

- joined: bytes are ``16 * second + first``, so that their sums are 16 times those of the second channel, plus
  those of the first one;
- apart: bytes are pairs of nibbles, and a shift to the right gives the second weight. This costs an
  instruction more, for weights that do not fit otherwise: -8 beside a negative one.
"""

from __future__ import annotations

import enum

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import mve, product_sum


class Bytes(str, enum.Enum):
    """How weights of two channels share a byte; the value is part of helpers' C names."""

    JOINED = "joined"
    APART = "apart"


def unsupported_sums(layer: LayerContext, matrix: Array) -> str | None:
    """The reason if 16 times a sum might leave 32 bits.

    Args:
        matrix: the weights as [channels, K], any zero point taken off.
    """
    _, (low, high) = product_sum.bias_and_bounds(layer, matrix)
    if low.min() < -(1 << 27) or high.max() >= 1 << 27:
        return f"sums must be in [-2^27, 2^27); they reach [{low.min()}, {high.max()}]"
    return None


def choose_bytes(matrix: Array) -> Bytes:
    """Joined, if all fit."""
    first, second = _channel_pairs(matrix.astype(np.int16))
    return Bytes.APART if bool(np.any(16 * second + first < -128)) else Bytes.JOINED


def block_bytes(matrix: Array) -> Array:
    """[channels, K] to int8 [blocks, vectors, 2, 16]: of each block channels 0 and 2, then 1 and 3."""
    first, second = _channel_pairs(matrix.astype(np.int16))
    if choose_bytes(matrix) is Bytes.JOINED:
        return (16 * second + first).astype(np.int8)
    return (16 * second | first & 0xF).astype(np.uint8).view(np.int8)


def starts(matrix: Array, biases: Array) -> Array:
    """What sums start from, int32 [blocks, 4]: biases, as they are in the sums.

    Args:
        biases: int32 [channels].
    """
    padded = product_sum.pad_channels(biases.astype(np.int64), mve.BLOCK).reshape(-1, 2, 2)
    first, second = padded[:, 0], padded[:, 1]
    if choose_bytes(matrix) is Bytes.JOINED:
        second = 16 * second + first
    return np.concatenate([16 * first, second], axis=1).astype(np.int32)


def pack_blocks(matrix: Array, records: Array, *, scaled: bool) -> Array:
    """Like `mve.pack_blocks`.

    Args:
        scaled: sums begin with the biases, see `starts`; otherwise these are added in the end.
    """
    weights = block_bytes(matrix)
    words = weights.reshape(weights.shape[0], -1).view("<i4")
    rows = mve.block_words(records)
    first = starts(matrix, records[:, 0]) if scaled else rows[:, : mve.BLOCK]
    return np.concatenate([first, words, rows[:, mve.BLOCK :]], axis=1)


def _channel_pairs(matrix: Array) -> tuple[Array, Array]:
    """Weights of channels 0 and 1, and of 2 and 3, as [blocks, vectors, 2, 16]."""
    blocks = mve.block_weights(matrix)
    return blocks[:, :, :2], blocks[:, :, 2:]
