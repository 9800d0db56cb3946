"""Notices of commands, separate from their output."""

from __future__ import annotations

import contextlib
import sys


def say(text: str) -> None:
    """Print a line on standard error; if that fails, ignore it."""
    with contextlib.suppress(OSError):
        print(f"microfold: {text}", file=sys.stderr)
