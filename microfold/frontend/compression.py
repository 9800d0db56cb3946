"""Decoder of constants that were compressed for TFLM.

A compressed constant is a bit string with ancillary data. The ancillary data begin with a header of 16 bytes:
the method in byte 0, the version (1) in bytes 1 and 4, and parameters of the method in bytes 5 and 6. Bit
strings begin at the highest bit of their first byte.

Source: https://github.com/tensorflow/tflite-micro/blob/main/tensorflow/lite/micro/kernels/decode_state.h, and
decode_state_lut.cc, decode_state_huffman.cc and decode_state_prune.cc in the same folder.
"""

from __future__ import annotations

import numpy as np

from microfold.frontend.context import Unsupported
from microfold.ir.types import Array, DType, Quant

HEADER = 16
LUT, HUFFMAN, PRUNE = 0, 1, 2
_WINDOW = 4  # bytes that contain the bits of one entry at any bit position
TYPES = (DType.INT8, DType.INT16, DType.INT32, DType.FLOAT32)


def decoded(
    encoded: Array, ancillary: Array, dtype: DType, shape: tuple[int, ...], quant: Quant | None
) -> Array:
    """Decompress a constant.

    Args:
        encoded, ancillary: uint8 arrays.
        quant: quantisation of the constant. With several channels, each has its own table or zero point.

    Raises:
        Unsupported: TFLM cannot read the data.
    """
    if dtype not in TYPES:
        raise Unsupported(f"its result must be {', '.join(t.value for t in TYPES)}; it is {dtype.value}")
    if ancillary.size < HEADER or ancillary[1] != 1 or ancillary[4] != 1:
        raise Unsupported(f"its ancillary data must begin with 16 bytes of version 1; it is {ancillary[:16]}")
    count = int(np.prod(shape))
    channels = _channels(shape, quant)
    bits = np.unpackbits(encoded)
    body = ancillary[HEADER:]
    ways = {LUT: _looked_up, PRUNE: _filled}
    if int(ancillary[0]) == HUFFMAN:
        return _from_code(bits, body, int(ancillary[5]), count, dtype).reshape(shape)
    if int(ancillary[0]) not in ways:
        raise Unsupported(f"its compression method must be 0 to 2; it is {int(ancillary[0])}")
    values = body[: body.size // dtype.itemsize * dtype.itemsize].view(dtype.numpy)
    points = np.array(quant.zero_points if quant is not None else (0,), dtype.numpy)
    way = ways[int(ancillary[0])]
    return way(bits, values, ancillary, channels, points).reshape(shape)


def _channels(shape: tuple[int, ...], quant: Quant | None) -> Array:
    """Return the channel of each element, int [elements]. Channels are on the first or the last axis."""
    count = int(np.prod(shape))
    if quant is None or quant.axis is None:
        return np.zeros(count, np.int64)
    channels, last = len(quant.scales), len(shape) - 1
    if quant.axis not in (0, last):
        raise Unsupported(
            f"its channels must be along the first or the last axis; they are along {quant.axis}"
        )
    places = np.arange(count)
    return places % channels if quant.axis == last and channels > 1 else places // (count // channels)


def _looked_up(bits: Array, values: Array, ancillary: Array, channels: Array, _points: Array) -> Array:
    """Decode indices into one table per channel.

    Byte 5 has the width of an index in bits, byte 6 the distance between two tables in elements.
    """
    width, stride = int(ancillary[5]) & 7, int(ancillary[6])
    if width == 0 or bits.size < width * channels.size:
        raise Unsupported(f"{channels.size} indices of {width} bits must be in its {bits.size} bits")
    rows = bits[: width * channels.size].reshape(-1, width).astype(np.int64)
    places = channels * stride + rows @ (1 << np.arange(width)[::-1])
    if places.size and int(places.max()) >= values.size:
        raise Unsupported(f"its table must have element {int(places.max())}; it has {values.size}")
    return values[places]


def _filled(bits: Array, values: Array, _ancillary: Array, channels: Array, points: Array) -> Array:
    """Decode one bit per element: it selects the next value, or the zero point of the channel."""
    kept = bits[: channels.size].astype(bool)
    if kept.size < channels.size or int(kept.sum()) > values.size:
        raise Unsupported(
            f"it must have {channels.size} bits, and a value for each bit that is set; it has {bits.size} "
            f"bits, {int(kept.sum())} set, and {values.size} values"
        )
    array = points[channels if points.size > 1 else np.zeros_like(channels)]
    array[kept] = values[: int(kept.sum())]
    return array


def _from_code(bits: Array, body: Array, parameters: int, count: int, dtype: DType) -> Array:
    """Decode a Huffman code, stored as a tree of lookup tables.

    A table is indexed by the next bits of the string. Its size is the number of these bits. The fields of an
    entry, from the highest bit down, are:

    - 1 bit: whether the entry is a symbol.
    - 4 bits: the number of bits that belong to the symbol; else the size of the next table, less 1.
    - The symbol; else the distance from the entry to the next table, in entries.

    Bit 0 of the parameters selects entries of 32 bits, else 16 bits (int8 only). Bits 4 to 7 have the size of
    the first table, less 1.
    """
    wide = bool(parameters & 1)
    if dtype not in (DType.INT8, DType.INT16) or (dtype is DType.INT16 and not wide):
        raise Unsupported(
            f"a Huffman code with {'32' if wide else '16'}-bit entries cannot encode {dtype.value}"
        )
    entry = np.dtype("<u4" if wide else "<u2")
    table = body[: body.size // entry.itemsize * entry.itemsize].view(entry).astype(np.int64).tolist()
    found, sizes = (31, 27) if wide else (15, 11)
    string = np.packbits(bits).tobytes() + bytes(_WINDOW)
    first, at, symbols = (parameters >> 4) + 1, 0, np.empty(count, np.int64)
    for number in range(count):
        size, place = first, 0
        while True:
            if at >= bits.size:
                raise Unsupported(f"its {bits.size} bits end before element {number} of {count}")
            # Bits after the end of the string do not belong to a symbol.
            window = int.from_bytes(string[at // 8 : at // 8 + _WINDOW], "big")
            place += window >> (8 * _WINDOW - at % 8 - size) & ((1 << size) - 1)
            if place >= len(table):
                raise Unsupported(f"its table must have entry {place}; it has {len(table)}")
            value = table[place]
            used = value >> sizes & 15
            if value >> found & 1:
                break
            at, size, place = at + size, used + 1, place + (value & ((1 << sizes) - 1))
        at += min(used, size)
        symbols[number] = value & (0xFFFF if dtype is DType.INT16 else 0xFF)
    if at > bits.size:
        raise Unsupported(f"its {bits.size} bits end before element {count - 1} of {count}")
    return symbols.astype(np.uint16 if dtype is DType.INT16 else np.uint8).view(dtype.numpy)
