"""Allowed overlaps of storages in the arena."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from microfold.ir.views import ALIGNMENT
from microfold.plan.liveness import Storage


class Overlap(Struct, frozen=True):
    """Permission that an output overlaps an input that dies in the call that computes the output.

    Attributes:
        distance: minimum of ``source offset - target offset``, in bytes.
        exact: whether only this distance is allowed.
    """

    source: Storage
    target: Storage
    distance: int
    exact: bool = False


class OverlapPermission(NamedTuple):
    """Permission that the first output overlaps an input, if the order of calls makes the input die there."""

    source: Storage
    distance: int
    exact: bool


def align(offset: int, alignment: int = ALIGNMENT) -> int:
    """Return the next multiple of the alignment."""
    return -(-offset // alignment) * alignment
