"""What commands say beside their output."""

from __future__ import annotations

import contextlib
import sys


def say(text: str) -> None:
    """A line on the standard error stream; that nobody reads it there changes nothing."""
    with contextlib.suppress(OSError):
        print(f"microfold: {text}", file=sys.stderr)
