"""Disassembly of an image by GNU objdump."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from microfold.errors import ToolError
from microfold.simulate.pipeline.decode import decode
from microfold.simulate.pipeline.instruction import Instruction
from microfold.simulate.toolchain import THUMB_ARCHITECTURE, find_tool
from microfold.support.tools import run_tool

OBJDUMP = "arm-none-eabi-objdump"
_SECONDS = 60.0
_LINE = re.compile(r"\s*([0-9a-f]+):\s+(\S+)\s*(.*)")
_COMMENT = re.compile(r"\s*[@;<].*$")


class Disassembly:
    """Instructions of an image.

    Attributes:
        lines: size in bytes, mnemonic and operands of each instruction, by address.
    """

    def __init__(self, lines: Mapping[int, tuple[int, str, str]]):
        self.lines = lines
        self._decoded = cache(self._decode)

    def _decode(self, address: int) -> Instruction | None:
        line = self.lines.get(address)
        return None if line is None else decode(address, *line)

    def block(self, address: int, count: int) -> tuple[Instruction, ...]:
        """Return up to `count` consecutive instructions from an address, up to the first non-instruction."""
        found: list[Instruction] = []
        while len(found) < count:
            instruction = self._decoded(address)
            if instruction is None:
                break
            found.append(instruction)
            address = instruction.end
        return tuple(found)


def disassemble(image: Path) -> Disassembly:
    """Return the instructions of an ELF image.

    Raises:
        ToolError: objdump is missing or cannot read the image.
    """
    command = [find_tool(OBJDUMP), "-d", "-w", "--no-show-raw-insn", THUMB_ARCHITECTURE, str(image)]
    done = run_tool(command, image.parent, _SECONDS, "disassembling")
    if done.returncode != 0:
        raise ToolError(f"{OBJDUMP} must read the image: {done.stderr.strip()[-500:]}")
    return Disassembly(read_lines(done.stdout))


def read_lines(text: str) -> dict[int, tuple[int, str, str]]:
    """Return size, mnemonic and operands by address, from the text of objdump."""
    found = [match for match in map(_LINE.fullmatch, text.splitlines()) if match]
    lines: dict[int, tuple[int, str, str]] = {}
    for index, match in enumerate(found):
        address = int(match[1], 16)
        following = int(found[index + 1][1], 16) if index + 1 < len(found) else address + 4
        if not match[2].startswith("."):
            size = 2 if following - address <= 2 else 4
            lines[address] = (size, match[2], _COMMENT.sub("", match[3]).strip())
    return lines
