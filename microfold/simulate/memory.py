"""Flash and RAM of a linked image by owner (model, C library, harness), from the linker's map."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from microfold.simulate.boards import MemoryRegion

CONTEXT_SECTIONS = (".bss.simulate_context", ".bss.simulate_arena")
"""Sections of the harness's variables: the context, and the parts of a separate arena."""


class PlacedSection(Struct, frozen=True):
    """Input section with its address, and its size in bytes. The ``file`` of padding is empty."""

    output: str
    name: str
    address: int
    size: int
    file: str


class Sections(Struct, frozen=True):
    """Sizes by kind, in bytes: code, constants, initialised and zeroed variables."""

    text: int = 0
    rodata: int = 0
    data: int = 0
    bss: int = 0

    @property
    def flash(self) -> int:
        """Flash in bytes: code, constants and the initial values of ``data``."""
        return self.text + self.rodata + self.data

    @property
    def ram(self) -> int:
        """RAM in bytes, without the stack."""
        return self.data + self.bss


class ImageMemory(Struct, frozen=True):
    """Memory of a firmware image, in bytes.

    Attributes:
        image: all linked sections, including the simulation harness and padding, but not the stack.
        model: object files of the model.
        library: functions from libc, libm and libgcc, which the harness does not use.
        context: size of the model's arena and state, which are part of ``image.bss``.
        stack: stack of one run below the caller's frame, down to the deepest word written.
    """

    image: Sections
    model: Sections
    library: Sections
    context: int
    stack: int

    @property
    def flash(self) -> int:
        """Flash that the model adds to a firmware: its own, and the library functions that it calls."""
        return self.model.flash + self.library.flash

    @property
    def ram(self) -> int:
        """RAM that the model adds to a firmware: context, variables and stack."""
        return self.context + self.model.ram + self.library.ram + self.stack


# " .text.run      0x00000100       0x1c run.o"; a long name is on a separate line before it.
_INPUT_SECTION = re.compile(r"^ (\S+)?\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)(?:\s+(\S.*?))?\s*$")
_LONG_NAME = re.compile(r"^ (\S+)$")
_OUTPUT_SECTION = re.compile(r"^(\S+)")


def placed_sections(link_map: str) -> Iterator[PlacedSection]:
    """Yield the input sections of the image, from the text of a GNU ld map."""
    _, _, body = link_map.partition("Linker script and memory map")
    output, long_name = "", ""
    for line in body.splitlines():
        if found := _OUTPUT_SECTION.match(line):
            output = found[1]
        elif found := _LONG_NAME.match(line):
            long_name = found[1]
            continue
        elif found := _INPUT_SECTION.match(line):
            name, size = found[1] or long_name, int(found[3], 16)
            if size and output != "/DISCARD/":
                yield PlacedSection(output, name, int(found[2], 16), size, found[4] or "")
        long_name = ""


def section_sizes(sections: Iterable[PlacedSection], ram: MemoryRegion) -> Sections:
    """Return sizes by kind, in bytes, without debugging information and stack."""
    text = rodata = data = bss = 0
    for section in sections:
        if section.output in (".text", ".vectors"):
            text += section.size
        elif section.output == ".data":
            data += section.size
        elif section.output == ".bss":
            bss += section.size
        elif section.address in ram:
            pass
        elif not section.output.startswith((".debug", ".ARM.attributes")):
            rodata += section.size  # also the user's sections for weights
    return Sections(text, rodata, data, bss)


def image_memory(
    link_map: str,
    model_objects: Collection[str],
    harness_objects: Collection[str],
    ram: MemoryRegion,
    stack: int,
) -> ImageMemory:
    """Return the memory of an image by owner.

    Args:
        link_map: text of the linker's map.
        model_objects, harness_objects: object files as named in the map. All others are libraries.
        ram: address range of the board's RAM.
        stack: measured stack, in bytes.
    """
    sections = list(placed_sections(link_map))
    ours = {*model_objects, *harness_objects}
    return ImageMemory(
        image=section_sizes(sections, ram),
        model=section_sizes((s for s in sections if s.file in model_objects), ram),
        library=section_sizes((s for s in sections if s.file and s.file not in ours), ram),
        context=sum(s.size for s in sections if s.name.startswith(CONTEXT_SECTIONS)),
        stack=stack,
    )
