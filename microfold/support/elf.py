"""Reader of ELF files (System V ABI): flash size of sections, loaded code, symbols."""

from __future__ import annotations

import struct
from pathlib import Path

from msgspec import Struct

from microfold.errors import ToolError

ARM = 40
_NOBITS = 8
_ALLOC = 2
_PT_LOAD = 1
_SHT_SYMTAB = 2


class ElfFile(Struct, frozen=True):
    """Object file or image.

    Attributes:
        machine: number of the architecture, e.g. `ARM`.
        in_flash: size of the loaded sections, in bytes, by name. Sizes of equal names are added.
    """

    machine: int
    in_flash: dict[str, int]

    @property
    def flash(self) -> int:
        """Size of code, constants and initial values, in bytes."""
        return sum(self.in_flash.values())


def read_elf(path: Path) -> ElfFile | None:
    """Return the sections of a file; None if it is not a little-endian ELF file."""
    data = path.read_bytes()
    if data[:4] != b"\x7fELF" or data[5:6] != b"\x01":
        return None
    wide = data[4] == 2
    (machine,) = struct.unpack_from("<H", data, 18)
    try:
        (table,) = struct.unpack_from("<Q", data, 40) if wide else struct.unpack_from("<I", data, 32)
        entry, count, names = struct.unpack_from("<3H", data, 58 if wide else 46)
        form = "<2I4Q" if wide else "<6I"
        headers = [struct.unpack_from(form, data, table + i * entry) for i in range(count)]
        strings = headers[names][4]
        sizes: dict[str, int] = {}
        for name, kind, flags, _, _, size in headers:
            if flags & _ALLOC and kind != _NOBITS:
                start = strings + name
                text = data[start : data.index(b"\0", start)].decode("utf-8", errors="replace")
                sizes[text] = sizes.get(text, 0) + size
    except (struct.error, IndexError, ValueError):
        return None
    return ElfFile(machine, sizes)


class Code(Struct, frozen=True):
    """Loaded segments of an image, each with its address and bytes."""

    segments: tuple[tuple[int, bytes], ...]

    def at(self, address: int, size: int) -> bytes:
        for start, data in self.segments:
            if start <= address and address + size <= start + len(data):
                return data[address - start : address - start + size]
        raise ToolError(f"executed code must be in the image; {size} bytes at {address:#x} are not")


def load_code(elf: Path) -> Code:
    """Return the segments of a 32-bit little-endian ELF file (System V ABI, program header)."""
    data = elf.read_bytes()
    (offset,) = struct.unpack_from("<I", data, 28)
    size, count = struct.unpack_from("<HH", data, 42)
    headers = (struct.unpack_from("<8I", data, offset + i * size) for i in range(count))
    loaded = (header for header in headers if header[0] == _PT_LOAD)
    return Code(tuple((address, data[begin : begin + length]) for _, begin, address, _, length, *_ in loaded))


def has_arm_code(data: bytes) -> bool:
    """Return whether an image has code in the Arm instruction set, by its mapping symbols ``$a``.

    Source: ELF for the Arm Architecture (Arm IHI 0044), 5.5.5.
    """
    (offset,) = struct.unpack_from("<I", data, 32)
    size, count = struct.unpack_from("<HH", data, 46)
    # Fields of a section: name, type, flags, address, offset, size, link, info, alignment, entry size.
    sections = [struct.unpack_from("<10I", data, offset + i * size) for i in range(count)]
    for _, kind, _, _, begin, length, link, _, _, entry in sections:
        if kind != _SHT_SYMTAB:
            continue
        names = sections[link][4]
        for symbol in range(begin, begin + length, entry):
            (name,) = struct.unpack_from("<I", data, symbol)
            if data[names + name : names + name + 2] == b"$a" and data[names + name + 2] in b"\0.":
                return True
    return False
