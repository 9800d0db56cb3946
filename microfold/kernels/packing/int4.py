"""Packing of 4-bit weights, two in a byte of flash.

The values decide whether weights fit, not their declared type: with their zero point subtracted, all of them
must be in [-8, 7].
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import Constant, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize.mul_lo import channel_records

# Range of 4-bit weights.
LOW, HIGH = -8, 7
# Channels of a word, and of a block.
GROUP = 4
# Number of inputs whose sums fit 16 bits.
RUN = 16


def unsupported(matrix: Array) -> str | None:
    """Return the reason if the weights do not fit 4 bits, else None.

    Args:
        matrix: weights with any zero point subtracted.
    """
    if not fit(matrix):
        return f"its weights must fit 4 bits; they are in [{matrix.min()}, {matrix.max()}]"
    return None


def fit(centred: Array) -> bool:
    """Return whether all weights, with any zero point subtracted, are in [-8, 7]."""
    return centred.size > 0 and int(centred.min()) >= LOW and int(centred.max()) <= HIGH


def pack_words(matrix: Array) -> Array:
    """Pack [channels, inputs] into uint32 words [channels / 4, inputs / 2], for cores without SIMD.

    A nibble is the weight plus 8. ``word & 0x000f000f`` has channels 0 and 1 of the first input, 16 bits
    apart. Channels 2 and 3 are 4 bits higher. The second input is 8 bits higher than the first one.

    Padding words follow, because the last run of `RUN` inputs may read beyond the weights.
    """
    padded = _padded(matrix, 2).astype(np.int64) + 8
    channels, depth = padded.shape
    blocks = padded.reshape(channels // GROUP, 2, 2, depth // 2, 2)
    # [block, word, low bit of the channel (which half of the word), input, high bit of the channel]
    words = join_nibbles(blocks.transpose(0, 3, 2, 4, 1).reshape(-1, 8))
    return np.pad(words, (0, -depth % RUN // 2))


def unpack_words(words: Array, channels: int, depth: int) -> Array:
    """Return the weights that `pack_words` has packed, int8 [channels, depth]."""
    shape = (-(-channels // GROUP), (depth + 1) // 2, 2, 2, 2)
    nibbles = split_nibbles(words).reshape(-1)[: int(np.prod(shape))].reshape(shape)
    rows = nibbles.transpose(0, 4, 2, 1, 3).reshape(shape[0] * GROUP, -1)
    return (rows[:channels, :depth] - 8).astype(np.int8)


WORD_FIELDS = declare(
    Field("weights", "[outputs / 4][inputs / 2], words of 2 inputs by 4 outputs, each plus 8"), "channels"
)


def word_constants(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array]
) -> tuple[tuple[tuple[str, SpecValue], ...], dict[str, Parameter]]:
    """Return the requantisation of sums over `pack_words` as spec, and the layer fields of a kernel.

    The fields are `WORD_FIELDS` and the limits of the output.

    Args:
        matrix: weights [channels, K], with any zero point subtracted.
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
    """Count the code parts for all channels of one row of inputs.

    Groups of 4 channels read runs of 16 inputs.
    """
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
    """Pad with zeros to whole groups of channels, and to a multiple of inputs."""
    channels, depth = matrix.shape
    return np.pad(matrix, ((0, -channels % GROUP), (0, -depth % inputs)))


def join_nibbles(nibbles: Array) -> Array:
    """Join the lowest 4 bits of integers [..., 8] to uint32 [...], with the first one lowest."""
    shifts = np.arange(0, 32, 4, dtype=np.int64)
    return ((nibbles.astype(np.int64) & 0xF) << shifts).sum(axis=-1).astype(np.uint32)


def split_nibbles(words: Array) -> Array:
    """Split words into the nibbles that `join_nibbles` has joined, int64 [..., 8] in [0, 15]."""
    return words[..., None].astype(np.int64) >> np.arange(0, 32, 4, dtype=np.int64) & 0xF
