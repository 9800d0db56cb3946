"""Convolution with weights of four bits for cores without SIMD instructions: `conv2d.pairs` with nibbles."""

from __future__ import annotations

from microfold.ir.types import Array
from microfold.kernels.conv2d.pairs import Conv2DThumb1, Conv2DThumb2
from microfold.kernels.conv2d.portable import filter_matrix
from microfold.kernels.kernel import Trade, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import int4, two_pixels_per_word


@register
class Conv2DThumb2Int4(Conv2DThumb2):
    """Eight weights a word, each taken out by one instruction; see `pack_words`.

    Runs are longer than with int8, since products of small weights are small: `split_long_runs` makes them
    fit.
    """

    name = "s8_s4w_conv2d__thumb2"
    trades = frozenset({Trade.FOUR_BITS, Trade.INPUT_SCRATCH})
    nibbles = True
    # Products of small weights are small.
    lengths = range(1, 17)
    longest = 16

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or int4.unsupported(filter_matrix(layer))

    def pack(self, matrix: Array, segment: int, length: int, unroll: int) -> Array:
        return pack_words(matrix, segment, length, unroll)


@register
class Conv2DThumb1Int4(Conv2DThumb1):
    """Two weights a byte, 8 larger than they are; see `pack_bytes`.

    Runs are longer than with int8; `split_long_runs` makes them fit.
    """

    name = "s8_s4w_conv2d__thumb1"
    trades = frozenset({Trade.FOUR_BITS, Trade.INPUT_SCRATCH})
    nibbles = True
    lengths = range(1, 13)
    longest = 12

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or int4.unsupported(filter_matrix(layer))

    def pack(self, matrix: Array, segment: int, length: int, unroll: int) -> Array:
        return pack_bytes(matrix, segment, length, unroll)


def pack_words(matrix: Array, segment: int, length: int, unroll: int) -> Array:
    """Weights [channels, K] as uint32 [channels, words]: those of each iteration fill whole words.

    Args:
        segment, length: see `two_pixels_per_word.pack_runs`.
        unroll: runs of an iteration.
    """
    packed = two_pixels_per_word.pack_runs(matrix, segment, length, unsigned=False)
    padded = two_pixels_per_word.pad_segments(packed, length * unroll, 8)
    return int4.join_nibbles(padded.reshape(len(matrix), -1, 8))


def pack_bytes(matrix: Array, segment: int, length: int, unroll: int) -> Array:
    """The same as uint8 [channels, bytes], 8 larger; the first weight of two is the lower nibble."""
    packed = two_pixels_per_word.pack_runs(matrix, segment, length, unsigned=False)
    padded = two_pixels_per_word.pad_segments(packed, length * unroll, 2).reshape(len(matrix), -1, 2) + 8
    return (padded[..., 0] | padded[..., 1] << 4).astype("uint8")
