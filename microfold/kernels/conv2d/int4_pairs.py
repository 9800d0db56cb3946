"""int8 convolution with 4-bit weights for cores without SIMD: the kernels of `conv2d.packed_two_per_word`
with nibbles.
"""

from __future__ import annotations

from microfold.ir.types import Array
from microfold.kernels.conv2d.packed_two_per_word import Conv2DThumb1, Conv2DThumb2
from microfold.kernels.conv2d.portable import filter_matrix
from microfold.kernels.kernel import ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import int4, two_pixels_per_word


@register
class Conv2DThumb2Int4(Conv2DThumb2):
    """Convolution for ARMv7-M with 8 weights in a word, each extracted by one instruction, see `pack_words`.

    Runs are longer than with int8, because products of small weights are small. `split_long_runs` makes them
    fit.
    """

    name = "s8_s4w_conv2d__thumb2"
    trades = frozenset({ResourceTradeoff.FOUR_BITS, ResourceTradeoff.INPUT_SCRATCH})
    nibbles = True
    lengths = range(1, 17)
    longest = 16

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or int4.unsupported(filter_matrix(layer))

    def pack(self, matrix: Array, segment: int, length: int, unroll: int) -> Array:
        return pack_words(matrix, segment, length, unroll)


@register
class Conv2DThumb1Int4(Conv2DThumb1):
    """Convolution for ARMv6-M with 2 weights in a byte, each plus 8, see `pack_bytes`.

    Runs are longer than with int8. `split_long_runs` makes them fit.
    """

    name = "s8_s4w_conv2d__thumb1"
    trades = frozenset({ResourceTradeoff.FOUR_BITS, ResourceTradeoff.INPUT_SCRATCH})
    nibbles = True
    lengths = range(1, 13)
    longest = 12

    def supports(self, layer: LayerContext) -> str | None:
        return super().supports(layer) or int4.unsupported(filter_matrix(layer))

    def pack(self, matrix: Array, segment: int, length: int, unroll: int) -> Array:
        return pack_bytes(matrix, segment, length, unroll)


def pack_words(matrix: Array, segment: int, length: int, unroll: int) -> Array:
    """Pack weights [channels, K] as uint32 [channels, words], with whole words for each iteration.

    Args:
        segment, length: see `two_pixels_per_word.pack_runs`.
        unroll: runs of an iteration.
    """
    packed = two_pixels_per_word.pack_runs(matrix, segment, length, unsigned=False)
    padded = two_pixels_per_word.pad_segments(packed, length * unroll, 8)
    return int4.join_nibbles(padded.reshape(len(matrix), -1, 8))


def pack_bytes(matrix: Array, segment: int, length: int, unroll: int) -> Array:
    """Pack weights plus 8 as uint8 [channels, bytes], the first weight of two in the lower nibble."""
    packed = two_pixels_per_word.pack_runs(matrix, segment, length, unsigned=False)
    padded = two_pixels_per_word.pad_segments(packed, length * unroll, 2).reshape(len(matrix), -1, 2) + 8
    return (padded[..., 0] | padded[..., 1] << 4).astype("uint8")
