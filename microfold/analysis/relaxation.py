"""Effects of relaxed numerics on a graph, for the build report."""

from __future__ import annotations

from msgspec import Struct


class Relaxation(Struct, frozen=True):
    """Rewrite that may change bits of the outputs, recorded by the pass that decided it.

    Attributes:
        where: node that was removed, e.g. ``mul %scaled``.
        change: description of the rewrite and of the changed rounding.
    """

    where: str
    change: str
