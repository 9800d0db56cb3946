"""Packing of 4-bit weights for Helium (MVE), two channels in a vector of bytes.

A left shift of the bytes by 4 results in 16 times the weights of the first channel. The second channel is
packed in one of two forms:

- joined: bytes are ``16 * second + first``. Their sums are 16 times the sums of the second channel, plus the
  sums of the first one.
- apart: bytes are pairs of nibbles, and a right shift extracts the second weight. This needs one more
  instruction. It is for weights that do not fit the joined form: a second weight of -8 and a negative first.
"""

from __future__ import annotations

import enum

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import mve, product_sum


class Bytes(str, enum.Enum):
    """Form in which the weights of two channels share a byte. The value is part of helpers' C names."""

    JOINED = "joined"
    APART = "apart"


def unsupported_sums(layer: LayerContext, matrix: Array) -> str | None:
    """Return the reason if 16 times a sum might exceed 32 bits, else None.

    Args:
        matrix: weights [channels, K], with any zero point subtracted.
    """
    _, (low, high) = product_sum.bias_and_bounds(layer, matrix)
    if low.min() < -(1 << 27) or high.max() >= 1 << 27:
        return f"sums must be in [-2^27, 2^27); they reach [{low.min()}, {high.max()}]"
    return None


def choose_bytes(matrix: Array) -> Bytes:
    """Return the joined form if all weights fit, else the separate one."""
    first, second = _channel_pairs(matrix.astype(np.int16))
    return Bytes.APART if bool(np.any(16 * second + first < -128)) else Bytes.JOINED


def block_bytes(matrix: Array) -> Array:
    """Pack [channels, K] into int8 [blocks, vectors, 2, 16], two channels of a block in a byte.

    Channels 0 and 1 of a block are first weights, channels 2 and 3 are second weights.
    """
    first, second = _channel_pairs(matrix.astype(np.int16))
    if choose_bytes(matrix) is Bytes.JOINED:
        return (16 * second + first).astype(np.int8)
    return (16 * second | first & 0xF).astype(np.uint8).view(np.int8)


def starts(matrix: Array, biases: Array) -> Array:
    """Return the initial sums, int32 [blocks, 4]: biases with the factors of the sums.

    Args:
        biases: int32 [channels].
    """
    padded = product_sum.pad_channels(biases.astype(np.int64), mve.BLOCK).reshape(-1, 2, 2)
    first, second = padded[:, 0], padded[:, 1]
    if choose_bytes(matrix) is Bytes.JOINED:
        second = 16 * second + first
    return np.concatenate([16 * first, second], axis=1).astype(np.int32)


def pack_blocks(matrix: Array, records: Array, *, scaled: bool) -> Array:
    """Pack 4-bit weights [channels, K] and their records, with the layout of `mve.pack_blocks`.

    Args:
        scaled: whether sums start from the biases, see `starts`. Otherwise the biases are added at the end.
    """
    weights = block_bytes(matrix)
    words = weights.reshape(weights.shape[0], -1).view("<i4")
    rows = mve.block_words(records)
    first = starts(matrix, records[:, 0]) if scaled else rows[:, : mve.BLOCK]
    return np.concatenate([first, words, rows[:, mve.BLOCK :]], axis=1)


def _channel_pairs(matrix: Array) -> tuple[Array, Array]:
    """Return the weights of channels 0 and 1, and of channels 2 and 3, each [blocks, vectors, 2, 16]."""
    blocks = mve.block_weights(matrix)
    return blocks[:, :, :2], blocks[:, :, 2:]
