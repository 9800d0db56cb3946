"""What a refused build says would do."""

from __future__ import annotations

import re

from microfold.errors import InputError


def needed(refused: InputError) -> int:
    """Bytes that would do: those of the last way that the refusal names."""
    return int(re.findall(r"(?:allow|kernels need) (\d+)", str(refused))[-1])
