"""Parser of sizes on the command line: bytes, also with a unit."""

from __future__ import annotations

import re

import typer

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
_SIZE = re.compile(r"(\d{1,15})(?: ?([KM])?(?:i?B)?)?", re.IGNORECASE | re.ASCII)


def parse_size(text: str) -> int:
    """Return a size in bytes; ``5120``, ``5K``, ``5KB`` and ``5 KiB`` are the same size.

    K is 1024 and M is 1024 * 1024, as in data sheets of microcontrollers.

    Raises:
        BadParameter: the text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(
            f"a size must be a whole number of bytes, or of K, KB or KiB (1,024) or M, MB or MiB "
            f"(1,048,576), e.g. 5120 or 5K; got {text!r}"
        )
    return int(match[1]) * _UNITS[(match[2] or "").upper()]
