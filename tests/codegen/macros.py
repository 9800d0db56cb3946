"""What a compiler defines by itself: tools that read C without compiling it must be told."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

# Generated code asks for these.
_ASKED_FOR = ("__ARM", "__GNUC__", "__BYTE_ORDER")


def macro_options(compiler: Sequence[str]) -> list[str]:
    """`-D` for each macro that generated code asks for.

    Args:
        compiler: its command with the flags that select the core.
    """
    command = [*compiler, "-dM", "-E", "-xc", os.devnull]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pairs = (line.split(" ", 2)[1:] for line in listing.splitlines())
    return [f"-D{name}={value}" for name, value in pairs if name.startswith(_ASKED_FOR)]
