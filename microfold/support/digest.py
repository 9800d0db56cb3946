"""Short names for long texts."""

from __future__ import annotations

import hashlib


def digest_of(text: str) -> str:
    """Twelve hexadecimal digits, the same for equal texts."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
