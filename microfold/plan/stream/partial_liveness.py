"""Partial liveness: resident values become alive, or are released, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from microfold.plan.overlap import Overlap
from microfold.plan.stream.blocks import Occupied, StreamBlock, moments_of
from microfold.plan.stream.window import UsedBytes


def occupied_bytes(block: StreamBlock, found: Iterable[UsedBytes], end: int) -> NDArray[np.int64]:
    """Return the bytes of a block in use at each moment before `end`, see `Occupied`.

    Args:
        found: bytes in use, in order of time; at all other moments the complete block is in use.
    """
    held = np.empty((2, end), np.int64)
    held[0], held[1] = 0, block.size
    for moments, own in found:
        held[:, moments] = own
    return held


def overlaps_in_time(
    blocks: Sequence[StreamBlock], occupied: Occupied, given: Sequence[Overlap]
) -> list[Overlap]:
    """Return overlaps of blocks over bytes that are unused while both blocks are alive.

    Args:
        given: overlaps that kernels allow; pairs that have one keep it.
    """
    known = {(each.source, each.target) for each in given}
    changing = [b for b in blocks if b in occupied and _changes(b, occupied[b])]
    found: list[Overlap] = []
    for one in changing:
        for other in blocks:
            if other is one or not one.times & other.times:
                continue
            common = moments_of(one.times & other.times)
            mine = occupied[one][:, common]
            theirs = occupied[other][:, common] if other in occupied else np.array([[0], [other.size]])
            for source, target, low, high in (
                (one, other, mine[0], theirs[1]),
                (other, one, theirs[0], mine[1]),
            ):
                distance = int((high - low).max())
                if distance < target.size and (source, target) not in known:
                    known.add((source, target))
                    found.append(Overlap(source, target, distance))
    return found


def _changes(block: StreamBlock, held: NDArray[np.int64]) -> bool:
    """Return whether some bytes are unused for some time."""
    first, last = held[:, block.moments]
    return bool((first > 0).any() or (last < block.size).any())
