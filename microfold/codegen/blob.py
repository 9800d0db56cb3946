"""Weights blob: all constants of a model in one binary file, which can be replaced without the code.

The file starts with a header of 32-bit words, little-endian: magic, format, layout (two words), size, build,
zero, CRC. The arrays follow, each at a multiple of the alignment.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Mapping

from microfold.codegen.layout import unspaced, without_comments
from microfold.codegen.names import private_name, rename
from microfold.ir.types import Array

MAGIC = 0x4257464D  # "MFWB"
FORMAT = 1
HEADER_SIZE = 32
BUILD_OFFSET = 20
# Minimum alignment in bytes, for the widest elements and for word loads; constants may require more.
ALIGNMENT = 8


def layout_id(model: str, texts: Mapping[str, str]) -> int:
    """Return a 64-bit hash of the generated code: equal hashes mean that the code uses constants in one way.

    Args:
        model: prefix of private names, see `names`. The rest of a private name does not change the hash.
        texts: generated files without their provenance. Comments do not change the hash.
    """
    code = without_comments("\n".join(text for _, text in sorted(texts.items())))
    numbers: dict[str, str] = {}
    code = rename(
        code, private_name(model, ""), lambda name: numbers.setdefault(name, f"private{len(numbers)}")
    )
    return int.from_bytes(hashlib.sha256(unspaced(code).encode()).digest()[:8], "big")


def pack(placed: Iterable[tuple[int, Array]], size: int, layout: int, build: int) -> bytes:
    """Return the bytes of the file.

    Args:
        placed: each array with its offset from the start of the file, in bytes.
        size: size of the file, in bytes.
        layout: see `layout_id`.
        build: build id, for people and tools; the code does not read it.
    """
    blob = bytearray(size)
    for offset, array in placed:
        data = array.astype(array.dtype.newbyteorder("<")).tobytes()
        blob[offset : offset + len(data)] = data
    words = [MAGIC, FORMAT, layout & 0xFFFFFFFF, layout >> 32, size, build, 0]
    head = struct.pack("<7I", *words)
    crc = zlib.crc32(blob[HEADER_SIZE:], zlib.crc32(head))
    blob[:HEADER_SIZE] = head + struct.pack("<I", crc)
    return bytes(blob)
