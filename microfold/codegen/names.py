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


# Last components of TensorFlow's tensor names that only repeat what the operator is.
_LEAVES = re.compile(
    r"(conv2d|depthwise|matmul|biasadd|relu6?|squeeze|convolution|fusedbatchnormv3|readvariableop|resource|add|"
    r"avgpool|maxpool|reshape|softmax)?\d*",
    re.IGNORECASE,
)


def short_name(text: str) -> str:
    """The telling part of a tensor name.

    TensorFlow joins the names of everything that was fused into an operator by ``;``. The one with the bias is
    named after the layer; without it, the first is the operator's own.
    """
    joined = text.split(";")
    chosen = next((part for part in joined if part.endswith("/BiasAdd")), joined[0])
    parts = [part for part in chosen.split(":")[0].split("/") if part]
    while len(parts) > 1 and _LEAVES.fullmatch(parts[-1]):
        parts.pop()
    return c_identifier(parts[-1] if parts else "")[-MAX_LENGTH:].strip("_")


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
