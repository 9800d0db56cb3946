"""C names made from the model's."""

from __future__ import annotations

import re

_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while".split()
)
MAX_LENGTH = 40


def c_identifier(text: str) -> str:
    """A lower-case C identifier that resembles the text."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "model"
    if name[0].isdigit() or name in _KEYWORDS:
        name = f"m_{name}"
    return name


def short_name(text: str) -> str:
    """The telling part of a tensor name: TensorFlow's joined paths end with the operator that was last."""
    last = text.split(";")[-1] if ";" in text else text
    last = re.sub(r":\d+$", "", last)
    parts = [part for part in last.split("/") if part]
    name = c_identifier("_".join(parts[-2:]))
    return name[-MAX_LENGTH:].strip("_")


class Namer:
    """Hands out unique identifiers."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, text: str) -> str:
        """An identifier made from the text; a number is appended if it is taken."""
        base = short_name(text)
        name, number = base, 2
        while name in self._taken:
            name = f"{base}_{number}"
            number += 1
        self._taken.add(name)
        return name
