"""Sizes on the command line: bytes, also with a unit."""

from __future__ import annotations

import re

import typer

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
_SIZE = re.compile(r"(\d{1,15})(?: ?([KM])?(?:i?B)?)?", re.IGNORECASE | re.ASCII)


def parse_size(text: str) -> int:
    """Return the bytes of a size, e.g. ``5120``, ``5K``, ``5KB`` and ``5 KiB``, which are all the same.

    K is 1024 and M is 1024 * 1024, as in data sheets of microcontrollers.

    Raises:
        BadParameter: the text is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(
            f"a size is a whole number of bytes, or of K, KB or KiB (1,024) or M, MB or MiB (1,048,576), "
            f"e.g. 5120 or 5K; given is {text!r}"
        )
    return int(match[1]) * _UNITS[(match[2] or "").upper()]
