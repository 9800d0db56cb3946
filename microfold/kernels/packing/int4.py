"""Weights of four bits, two in a byte of flash, and how they are packed.

Whether weights fit is a fact about their values, whatever their declared type: centred at their zero point,
all of them are in [-8, 7].
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import Constant, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize.multiply_low import channel_records

# Range of weights of four bits.
LOW, HIGH = -8, 7
# Channels of a word, and of a block.
GROUP = 4
# Inputs whose sums fit 16 bits.
RUN = 16


def unsupported(matrix: Array) -> str | None:
    """The reason if the weights do not fit four bits.

    Args:
        matrix: the weights, any zero point taken off.
    """
    if not fit(matrix):
        return f"its weights must fit 4 bits; they are in [{matrix.min()}, {matrix.max()}]"
    return None


def fit(centred: Array) -> bool:
    """Whether weights, any zero point taken off, are all in [-8, 7]."""
    return centred.size > 0 and int(centred.min()) >= LOW and int(centred.max()) <= HIGH


def pack_words(matrix: Array) -> Array:
    """For cores without SIMD instructions: uint32 words [channels / 4, inputs / 2] from [channels, inputs].

    Behind them lie as many words as runs of `RUN` inputs may read too much.

    Nibbles are 8 larger than weights. ``word & 0x000f000f`` has those of channels 0 and 1 for the first
    input, 16 bits apart; 4 bits higher are channels 2 and 3, another 8 bits higher all of the second input.
    """
    padded = _padded(matrix, 2).astype(np.int64) + 8
    channels, depth = padded.shape
    blocks = padded.reshape(channels // GROUP, 2, 2, depth // 2, 2)
    # [block, word, half: channel's lowest bit, input, channel's highest bit]
    words = join_nibbles(blocks.transpose(0, 3, 2, 4, 1).reshape(-1, 8))
    return np.pad(words, (0, -depth % RUN // 2))


def unpack_words(words: Array, channels: int, depth: int) -> Array:
    """Inverse of `pack_words`: int8 [channels, depth]."""
    shape = (-(-channels // GROUP), (depth + 1) // 2, 2, 2, 2)
    nibbles = split_nibbles(words).reshape(-1)[: int(np.prod(shape))].reshape(shape)
    rows = nibbles.transpose(0, 4, 2, 1, 3).reshape(shape[0] * GROUP, -1)
    return (rows[:channels, :depth] - 8).astype(np.int8)


WORD_FIELDS = declare(
    Field("weights", "[outputs / 4][inputs / 2]: of two inputs and four outputs, 8 larger"), "channels"
)


def word_constants(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> tuple[tuple[tuple[str, SpecValue], ...], dict[str, Parameter]]:
    """How sums of `pack_words` are requantised, and values of `WORD_FIELDS` and of output limits.

    Args:
        matrix: the weights as [channels, K], any zero point taken off.
        multipliers: the reference's mantissas and shifts per channel.
    """
    narrow = layer.target.has("thumb1")
    form, records, clamp, limits = channel_records(layer, matrix, multipliers, narrow=narrow)
    fields: dict[str, Parameter] = {
        "weights": Constant("weights", pack_words(matrix)),
        "channels": Constant("channels", product_sum.pad_records(records, GROUP), record="mf_channel"),
    }
    return (("requantize", form), ("clamp", clamp)), fields | limits


def row_terms(depth: int, channels: int) -> Terms:
    """Of all channels of one row of inputs: groups of four read runs of 16 inputs."""
    groups, runs = -(-channels // GROUP), -(-depth // RUN)
    return Terms(
        row=1,
        input=depth,
        block=groups,
        part=groups * (depth % RUN != 0),
        run=groups * runs,
        output=channels,
    )


def _padded(matrix: Array, inputs: int) -> Array:
    """With zeros up to whole groups of channels, and to a multiple of inputs."""
    channels, depth = matrix.shape
    return np.pad(matrix, ((0, -channels % GROUP), (0, -depth % inputs)))


def join_nibbles(nibbles: Array) -> Array:
    """[..., 8] integers, the lowest four bits of which count, to uint32 [...]: the first one lowest."""
    shifts = np.arange(0, 32, 4, dtype=np.int64)
    return ((nibbles.astype(np.int64) & 0xF) << shifts).sum(axis=-1).astype(np.uint32)


def split_nibbles(words: Array) -> Array:
    """Inverse of `join_nibbles`: int64 [..., 8] in [0, 15]."""
    return words[..., None].astype(np.int64) >> np.arange(0, 32, 4, dtype=np.int64) & 0xF
