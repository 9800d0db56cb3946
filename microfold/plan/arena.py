"""Offsets of storage in the arena: greedy placement in several orders, the best one wins."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from microfold.ir.views import ALIGNMENT
from microfold.plan.liveness import Storage, lower_bound


@dataclass(frozen=True)
class Overlap:
    """Leave for an output to lie over an input that dies in the call that computes the output.

    Attributes:
        distance: smallest allowed ``source offset - target offset``, in bytes.
        exact: only this very distance is allowed.
    """

    source: Storage
    target: Storage
    distance: int
    exact: bool = False


@dataclass(frozen=True)
class ArenaPlan:
    """Where every storage lies.

    Attributes:
        offsets: bytes from the start of the arena, each a multiple of `ALIGNMENT`.
        size: bytes of the arena.
        lower_bound: bytes that no plan without overlap can go below.
    """

    offsets: Mapping[Storage, int]
    size: int
    lower_bound: int
    overlaps: tuple[Overlap, ...] = field(default=())


def align(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


class _Placement:
    """Greedy placement: storages one by one, each to the best place that is left."""

    def __init__(self, overlaps: Mapping[tuple[Storage, Storage], Overlap], *, grow_down: bool):
        self.overlaps = overlaps
        self.grow_down = grow_down
        self.offsets: dict[Storage, int] = {}

    def forbidden(self, block: Storage) -> list[tuple[int, int]]:
        """Ranges of offsets, [low, high), that `block` may not take."""
        ranges: list[tuple[int, int]] = []
        for other, offset in self.offsets.items():
            if not block.lives_with(other):
                continue
            low, high = offset - block.size + 1, offset + other.size
            allowed_from, allowed_to = low, low  # [from, to) is allowed although it overlaps
            if (other, block) in self.overlaps:  # block is computed from other
                overlap = self.overlaps[other, block]
                allowed_to = offset - overlap.distance + 1
                allowed_from = allowed_to - 1 if overlap.exact else low
            elif (block, other) in self.overlaps:  # other is computed from block
                overlap = self.overlaps[block, other]
                allowed_from = offset + overlap.distance
                allowed_to = allowed_from + 1 if overlap.exact else high
            ranges += [
                (begin, end)
                for begin, end in ((low, min(allowed_from, high)), (max(allowed_to, low), high))
                if begin < end
            ]
        return sorted(ranges)

    def place(self, block: Storage) -> None:
        """Put a block at the lowest free place or, growing down, where the whole grows least.

        Growing down makes offsets negative: an output may have to start before an input that already lies at
        the bottom. `result` moves everything up.
        """
        ranges = self.forbidden(block)
        bottom = min(self.offsets.values(), default=0)
        top = self.top()
        edges = [edge for low, high in ranges for edge in (align(high), align(low) - ALIGNMENT)]
        free = [
            offset for offset in (bottom, *edges) if not any(low <= offset < high for low, high in ranges)
        ]

        def growth(offset: int) -> tuple[int, int]:
            return max(top, align(offset + block.size)) - min(bottom, offset), offset

        if self.grow_down:
            self.offsets[block] = min(free, key=growth)
        else:
            self.offsets[block] = min(offset for offset in free if offset >= 0)

    def top(self) -> int:
        return max((align(offset + block.size) for block, offset in self.offsets.items()), default=0)

    @property
    def size(self) -> int:
        return self.top() - min(self.offsets.values(), default=0)

    def result(self) -> dict[Storage, int]:
        """Offsets from the start of the arena."""
        bottom = min(self.offsets.values(), default=0)
        return {block: offset - bottom for block, offset in self.offsets.items()}


def _orders(blocks: Sequence[Storage]) -> list[list[Storage]]:
    """Orders of placement worth trying; none is best for all models."""
    position = {block: i for i, block in enumerate(blocks)}
    keys: list[Callable[[Storage], tuple[int, ...]]] = [
        lambda b: (-b.size, b.first),
        lambda b: (-b.size, -b.last),
        lambda b: (-(b.last - b.first), -b.size),
        lambda b: (-b.size * (b.last - b.first + 1), b.first),
        lambda b: (b.first, -b.size),
        lambda b: (-b.last, -b.size),
    ]
    return [sorted(blocks, key=lambda b, k=key: (*k(b), position[b])) for key in keys]


def plan_arena(blocks: Sequence[Storage], overlaps: Sequence[Overlap]) -> ArenaPlan:
    """Place all storages, as small as the tried orders allow.

    Args:
        blocks: storages with their lifetimes, in a deterministic order.
        overlaps: pairs that may share bytes though both live during one call.
    """
    table = {(o.source, o.target): o for o in overlaps}
    best: _Placement | None = None
    tried = [*_orders(blocks), *_promote_peak(blocks)]
    for order, grow_down in itertools.product(tried, (False, True)):
        placement = _Placement(table, grow_down=grow_down)
        for block in order:
            placement.place(block)
        if best is None or placement.size < best.size:
            best = placement
    assert best is not None
    return ArenaPlan(best.result(), best.size, lower_bound(blocks), tuple(overlaps))


def _promote_peak(blocks: Sequence[Storage]) -> list[list[Storage]]:
    """Orders that place what lives at the fullest moment first, forwards and backwards in time."""
    if not blocks:
        return [[]]
    moments = sorted({block.first for block in blocks})
    peak = max(moments, key=lambda m: sum(b.size for b in blocks if b.first <= m <= b.last))

    def distance(block: Storage) -> int:
        return max(block.first - peak, peak - block.last, 0)

    return [
        sorted(blocks, key=lambda b: (distance(b), -b.size, b.first)),
        sorted(blocks, key=lambda b: (distance(b), b.first)),
        sorted(blocks, key=lambda b: (distance(b), -b.last)),
    ]
