"""Parser of operands in the text of GNU objdump."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ALIASES = {"sl": "r10", "fp": "r11", "ip": "r12", "sb": "r9"}
_REGISTER = re.compile(r"(r\d+|sl|fp|ip|sb|lr|sp|pc|[sdq]\d+)!?")
_INSIDE = re.compile(r"\b(r\d+|sl|fp|ip|sb|lr|sp|pc|q\d)\b")


def split(operands: str) -> list[str]:
    """Split operands at commas outside of brackets and braces."""
    parts: list[str] = []
    depth, start = 0, 0
    for position, character in enumerate(operands):
        if character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(operands[start:position].strip())
            start = position + 1
    last = operands[start:].strip()
    return [*parts, last] if last else parts


def register(text: str) -> str:
    """Return the canonical name of a register, without the mark of an updated base."""
    name = text.rstrip("!")
    return _ALIASES.get(name, name)


def registers(parts: Iterable[str]) -> list[str]:
    """Return the operands that are registers."""
    return [register(part) for part in parts if _REGISTER.fullmatch(part)]


def is_core(name: str) -> bool:
    """Return whether a register is a core register, not one of the floating-point unit."""
    return name[0] not in "sdq" or name in ("sp", "sl", "sb")


def singles(names: Iterable[str]) -> tuple[str, ...]:
    """Return registers, with wide floating-point registers split into single-precision ones."""
    found: list[str] = []
    for name in names:
        width = {"d": 2, "q": 4}.get(name[0], 1) if name[1:].isdigit() else 1
        number = int(name[1:]) * width if width > 1 else 0
        found += [f"s{number + i}" for i in range(width)] if width > 1 else [name]
    return tuple(found)


def listed(operands: str) -> list[str]:
    """Return the registers between braces."""
    found: list[str] = []
    for part in operands[operands.index("{") + 1 : operands.index("}")].split(","):
        first, dash, last = part.strip().partition("-")
        first, last = register(first.strip()), register(last.strip())
        if dash:
            found += [f"{first[0]}{i}" for i in range(int(first[1:]), int(last[1:]) + 1)]
        else:
            found.append(first)
    return found


def address(part: str) -> list[str]:
    """Return the registers between brackets; the first one is the base."""
    return [register(name) for name in _INSIDE.findall(part.strip("[]!"))]


def offset(part: str) -> int:
    """Return the constant offset of an address between brackets, in bytes."""
    found = re.search(r"#(-?\d+)\]", part)
    return int(found[1]) if found else 0
