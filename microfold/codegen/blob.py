"""All constants of a model in one binary file, which can be replaced without its code.

The file begins with a header of 32-bit words, little-endian: magic, format, layout (two words), size, build,
zero, CRC. Then the arrays, each at a multiple of the alignment.
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
# What the widest elements and the cores' loads of words ask for; constants may ask for more.
ALIGNMENT = 8


def layout_id(model: str, texts: Mapping[str, str]) -> int:
    """64 bits that differ between generated files which do not do the same with the same constants.

    Args:
        model: the name that private names begin with, see `names`. What follows does not count.
        texts: the generated files, without what says where they come from. Comments do not count.
    """
    code = without_comments("\n".join(text for _, text in sorted(texts.items())))
    numbers: dict[str, str] = {}
    code = rename(
        code, private_name(model, ""), lambda name: numbers.setdefault(name, f"private{len(numbers)}")
    )
    return int.from_bytes(hashlib.sha256(unspaced(code).encode()).digest()[:8], "big")


def pack(placed: Iterable[tuple[int, Array]], size: int, layout: int, build: int) -> bytes:
    """The file.

    Args:
        placed: each array with its offset from the file's beginning.
        size: of the file.
        layout: see `layout_id`.
        build: the identity of the build, for people and tools; the code does not look at it.
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
