"""Flash and RAM of a linked image, from the linker's map: the model's, the C library's, the harness's."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from microfold.simulate.boards import Region
from microfold.support.frozen import frozen

CONTEXT_SECTIONS = (".bss.simulate_context", ".bss.simulate_arena")
"""How the sections are called of the harness's variables: the context, and parts of the arena if apart."""


@frozen
class PlacedSection:
    """An input section and where it is; ``address`` and ``size`` in bytes; padding has no ``file``."""

    output: str
    name: str
    address: int
    size: int
    file: str


@frozen
class Sections:
    """Bytes by kind: code, constants, initialised and zeroed variables."""

    text: int = 0
    rodata: int = 0
    data: int = 0
    bss: int = 0

    @property
    def flash(self) -> int:
        """Bytes of flash: code, constants and the initial values of ``data``."""
        return self.text + self.rodata + self.data

    @property
    def ram(self) -> int:
        """Bytes of RAM without the stack."""
        return self.data + self.bss


@frozen
class ImageMemory:
    """Memory of a firmware image, in bytes.

    Attributes:
        image: everything that was linked, the simulation harness and padding included, the stack not.
        model: the model's own object files.
        library: what the linker took from libc, libm and libgcc; the harness uses none of them.
        context: size of the model's arena and of what it keeps, which is part of ``image.bss``.
        stack: of one run, below the caller's frame: down to the deepest word that was written.
    """

    image: Sections
    model: Sections
    library: Sections
    context: int
    stack: int

    @property
    def flash(self) -> int:
        """Flash that the model costs a firmware: its own and the library functions it calls."""
        return self.model.flash + self.library.flash

    @property
    def ram(self) -> int:
        """RAM that the model costs a firmware: context, variables and stack."""
        return self.context + self.model.ram + self.library.ram + self.stack


# " .text.run      0x00000100       0x1c run.o"; a long name stands alone on the line before.
_INPUT_SECTION = re.compile(r"^ (\S+)?\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)(?:\s+(\S.*?))?\s*$")
_LONG_NAME = re.compile(r"^ (\S+)$")
_OUTPUT_SECTION = re.compile(r"^(\S+)")


def placed_sections(link_map: str) -> Iterator[PlacedSection]:
    """The input sections that are in the image, from the text of a GNU ld map."""
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


def section_sizes(sections: Iterable[PlacedSection], ram: Region) -> Sections:
    """Bytes by kind; debugging information, which is in no memory, does not count, nor does the stack."""
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
            rodata += section.size  # also sections that the user named for the weights
    return Sections(text, rodata, data, bss)


def image_memory(
    link_map: str, model_objects: Collection[str], harness_objects: Collection[str], ram: Region, stack: int
) -> ImageMemory:
    """Memory of an image by owner.

    Args:
        link_map: text of the linker's map.
        model_objects: the model's object files as the map names them; ``harness_objects`` alike.
            All others are libraries.
        ram: where the board's RAM is.
        stack: measured stack in bytes.
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
