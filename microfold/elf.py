"""What is read of ELF files: sections and what they take of flash (System V ABI, section header table)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

ARM = 40
_NOBITS = 8
_ALLOC = 2


@dataclass(frozen=True)
class ElfFile:
    """An object file or an image.

    Attributes:
        machine: the number of its architecture; `ARM`: 40.
        in_flash: sections that are loaded, by name: their bytes. Equal names are added up.
    """

    machine: int
    in_flash: dict[str, int]

    @property
    def flash(self) -> int:
        """Bytes of code, constants and initial values."""
        return sum(self.in_flash.values())


def read_elf(path: Path) -> ElfFile | None:
    """The sections of a file; None if it is no little-endian ELF file."""
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
