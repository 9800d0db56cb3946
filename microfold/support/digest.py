"""Short digests of texts."""

from __future__ import annotations

import hashlib


def digest_of(text: str) -> str:
    """Return twelve hexadecimal digits that identify a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
