"""Decoder of Thumb instructions into the kinds that timing tables distinguish.

Encodings: Armv7-M Architecture Reference Manual (Arm DDI 0403), chapters A5 and A6.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from msgspec import Struct


class InstructionKind(enum.Enum):
    """Kind of an instruction. The value is the field of `Timing` with its cycles."""

    ALU = "alu"
    MULTIPLY = "multiply"
    MULTIPLY_ADD = "multiply_add"
    MULTIPLY_LONG = "multiply_long"
    DIVIDE = "divide"
    LOAD = "load"
    STORE = "store"
    STORE_INDEXED = "store_indexed"
    MULTIPLE = "multiple"
    BRANCH = "branch"
    FLOAT = "float"
    FLOAT_MULTIPLY_ADD = "float_multiply_add"
    FLOAT_DIVIDE = "float_divide"


class ThumbInstruction(Struct, frozen=True):
    """Decoded instruction.

    Attributes:
        words: number of words that a MULTIPLE transfers.
        target: register that a LOAD writes; -1 for other kinds.
        base: base register of a LOAD or STORE; -1: the program counter.
    """

    kind: InstructionKind
    words: int = 0
    target: int = -1
    base: int = -1


def instructions(code: bytes) -> Iterator[ThumbInstruction]:
    """Yield the instructions of a block of code (little endian)."""
    halves = [int.from_bytes(code[i : i + 2], "little") for i in range(0, len(code), 2)]
    position = 0
    while position < len(halves):
        first = halves[position]
        if first >> 11 in (0b11101, 0b11110, 0b11111):
            yield _wide(first, halves[position + 1])
            position += 2
        else:
            yield _narrow(first)
            position += 1


def _narrow(h: int) -> ThumbInstruction:
    top = h >> 12
    if h & 0xF800 == 0x4800:
        return ThumbInstruction(InstructionKind.LOAD, target=(h >> 8) & 7)
    if top == 0x5:
        base, target = (h >> 3) & 7, h & 7
        if (h >> 9) & 7 <= 2:
            return ThumbInstruction(InstructionKind.STORE_INDEXED, base=base)
        return ThumbInstruction(InstructionKind.LOAD, target=target, base=base)
    if top in (0x6, 0x7, 0x8):
        return _transfer(bool(h & 0x800), target=h & 7, base=(h >> 3) & 7)
    if top == 0x9:
        return _transfer(bool(h & 0x800), target=(h >> 8) & 7, base=13)
    if h & 0xF600 == 0xB400:
        return ThumbInstruction(InstructionKind.MULTIPLE, words=(h & 0x1FF).bit_count())
    if top == 0xC:
        return ThumbInstruction(InstructionKind.MULTIPLE, words=(h & 0xFF).bit_count())
    if top == 0xD or h & 0xF800 == 0xE000 or h & 0xFF00 == 0x4700 or h & 0xF500 == 0xB100:
        return ThumbInstruction(InstructionKind.BRANCH)
    if h & 0xFFC0 == 0x4340:
        return ThumbInstruction(InstructionKind.MULTIPLY)
    return ThumbInstruction(InstructionKind.ALU)


def _wide(h: int, g: int) -> ThumbInstruction:
    if h & 0xFE40 == 0xE800:
        return ThumbInstruction(InstructionKind.MULTIPLE, words=g.bit_count())
    if h & 0xFE40 == 0xE840:
        table_branch = h & 0xFFF0 == 0xE8D0 and g & 0xFFE0 == 0xF000
        return (
            ThumbInstruction(InstructionKind.BRANCH)
            if table_branch
            else ThumbInstruction(InstructionKind.MULTIPLE, words=2)
        )
    if h & 0xFE00 == 0xF800:
        target, base = g >> 12, h & 15
        if h & 0x10:
            return ThumbInstruction(InstructionKind.LOAD, target=target, base=base)
        by_register = not (h & 0x80 or g & 0x800)
        return ThumbInstruction(
            InstructionKind.STORE_INDEXED if by_register else InstructionKind.STORE, base=base
        )
    if h & 0xFF80 == 0xFB00:
        return ThumbInstruction(InstructionKind.MULTIPLY if g >> 12 == 15 else InstructionKind.MULTIPLY_ADD)
    if h & 0xFF80 == 0xFB80:
        divides = (h >> 4) & 7 in (1, 3) and g & 0xF0 == 0xF0
        return ThumbInstruction(InstructionKind.DIVIDE if divides else InstructionKind.MULTIPLY_LONG)
    if h & 0xF800 == 0xF000 and g & 0x8000:
        system = g & 0xD000 == 0x8000 and h & 0x380 == 0x380
        return ThumbInstruction(InstructionKind.ALU if system else InstructionKind.BRANCH)
    if h & 0xEC00 == 0xEC00:
        return _coprocessor(h, g)
    return ThumbInstruction(InstructionKind.ALU)


def _transfer(loads: bool, target: int, base: int) -> ThumbInstruction:
    return (
        ThumbInstruction(InstructionKind.LOAD, target=target, base=base)
        if loads
        else ThumbInstruction(InstructionKind.STORE, base=base)
    )


def _coprocessor(h: int, g: int) -> ThumbInstruction:
    if h & 0xEE00 == 0xEC00:
        if h & 0xFFE0 == 0xEC40:  # VMOV of two registers
            return ThumbInstruction(InstructionKind.MULTIPLE, words=1)
        single = h & 0x120 == 0x100  # VLDR, VSTR
        double = bool(g & 0x100)
        return ThumbInstruction(InstructionKind.MULTIPLE, words=(2 if double else 1) if single else g & 0xFF)
    operation = h & 0xFFB0
    arithmetic = h & 0xFF00 == 0xEE00 and not g & 0x10
    if arithmetic and operation in (0xEE00, 0xEE10, 0xEE90, 0xEEA0):
        return ThumbInstruction(InstructionKind.FLOAT_MULTIPLY_ADD)
    divides = operation == 0xEE80 and not g & 0x40
    square_root = h & 0xFFBF == 0xEEB1 and g & 0xC0 == 0xC0
    if arithmetic and (divides or square_root):
        return ThumbInstruction(InstructionKind.FLOAT_DIVIDE)
    return ThumbInstruction(InstructionKind.FLOAT)
