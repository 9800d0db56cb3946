"""Arenas that need no kernels."""

from __future__ import annotations

from collections.abc import Callable

from microfold.ir.graph import Graph
from microfold.passes.context import ArenaEstimate


class Counted:
    """Arenas that get smaller with each node less; what is alive everywhere decides.

    Args:
        fits: whether a graph fits what is allowed.
        full: names of the values that are alive where the arena is fullest; None: all.
    """

    def __init__(
        self,
        fits: Callable[[Graph], bool] = lambda _: True,
        full: tuple[str, ...] | None = None,
        limited: bool = False,
    ):
        self.fits, self.full, self.limited = fits, full, limited
        self.asked = 0

    def __call__(self, graph: Graph) -> ArenaEstimate | None:
        self.asked += 1
        values = [value for node in graph.nodes for value in node.outputs]
        full = frozenset(v for v in values if self.full is None or v.name in self.full)
        return ArenaEstimate(len(values), 1.0, 0, full) if self.fits(graph) else None

    def why_not(self, before: ArenaEstimate | None, after: ArenaEstimate | None) -> str | None:
        if after is None:
            return "nothing fits"
        return "as large" if before is not None and after.arena >= before.arena else None
