"""Storage of which not all bytes hold something all the time: what is held whole comes and goes by rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from microfold.plan.overlap import Overlap
from microfold.plan.stream.blocks import Block, moments

# Of blocks, by moment: bytes that hold something, from the first to before the last; default: all.
Occupied = dict[Block, dict[int, tuple[int, int]]]


def overlaps_in_time(
    blocks: Sequence[Block], occupied: Mapping[Block, Mapping[int, tuple[int, int]]], given: Sequence[Overlap]
) -> list[Overlap]:
    """Leave for one block to lie below another one, over bytes that hold nothing while both are in use.

    Args:
        given: leave that kernels give; pairs that have more of it keep it.
    """
    known = {(each.source, each.target) for each in given}
    ends = max((block.last for block in blocks), default=0) + 1
    bytes_at = {block: _held(block, occupied[block], ends) for block in blocks if block in occupied}
    changing = [b for b, held in bytes_at.items() if _changes(b, held)]
    found: list[Overlap] = []
    for one in changing:
        for other in blocks:
            if other is one or not one.times & other.times:
                continue
            common = [*moments(one.times & other.times)]
            mine = bytes_at[one][:, common]
            theirs = bytes_at[other][:, common] if other in bytes_at else np.array([[0], [other.size]])
            for source, target, low, high in (
                (one, other, mine[0], theirs[1]),
                (other, one, theirs[0], mine[1]),
            ):
                distance = int((high - low).max())
                if distance < target.size and (source, target) not in known:
                    known.add((source, target))
                    found.append(Overlap(source, target, distance))
    return found


def _held(block: Block, found: Mapping[int, tuple[int, int]], end: int) -> NDArray[np.int64]:
    """The first byte that holds something, and the one behind the last, of each moment."""
    held = np.empty((2, end), np.int64)
    held[0], held[1] = 0, block.size
    for moment, (first, last) in found.items():
        held[:, moment] = first, last
    return held


def _changes(block: Block, held: NDArray[np.int64]) -> bool:
    """Whether some bytes hold nothing for some time."""
    times = [*moments(block.times)]
    return bool((held[0, times] > 0).any() or (held[1, times] < block.size).any())
