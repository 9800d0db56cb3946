"""Exact search for the smallest arena, and for lower bounds of its size.

If one alternative is chosen for every pair of storages, the least offsets are the longest paths in the graph
of constraints. The search is a branch and bound over the alternatives of pairs that are not yet satisfied.
The current longest paths are a lower bound for all descendants of a search node.

All limits count steps, so that the plan is the same on every machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import Struct

from microfold.plan.problem import OffsetConstraint, Pair, PlacementProblem


class PlacementSolution(Struct, frozen=True):
    """Result of a search, in units.

    Attributes:
        offsets: offsets of the smallest plan below the given limit; None if none was found.
        size: size of the smallest known plan: the limit, if none was found.
        bound: proved lower bound.
        steps: number of steps used.
    """

    offsets: Sequence[int] | None
    size: int
    bound: int
    steps: int


class _Node(Struct, frozen=True, eq=False):
    """Search node: the least offsets under some choices; the last choice is `edges`."""

    top: int
    offsets: Sequence[int]
    edges: tuple[OffsetConstraint, ...]


class _Search:
    """Branch and bound, depth first.

    Attributes:
        limit: size that plans must stay below: at first the caller's limit, then the size of the best plan.
        steps: remaining steps.
    """

    def __init__(self, problem: PlacementProblem, limit: int, steps: int):
        self.problem = problem
        self.limit = limit
        self.steps = steps
        self.best: Sequence[int] | None = None
        self._after: list[list[tuple[int, int]]] = [[] for _ in problem.sizes]

    def run(self, enough: int) -> PlacementSolution:
        """Search until a plan has the size `enough`, all nodes are visited, or no step is left."""
        start = [0] * len(self.problem.sizes)
        unknown, given = self.limit, self.steps
        # For each node on the current path: its unvisited children, and its edges.
        path: list[tuple[list[_Node], tuple[OffsetConstraint, ...]]] = [
            ([_Node(max(self.problem.sizes), start, ())], ())
        ]
        while path:
            waiting, edges = path[-1]
            if not waiting:
                path.pop()
                self._retract(edges)
                continue
            node = waiting.pop()
            if node.top >= self.limit:
                continue
            if self.steps <= 0:
                unknown = min(unknown, node.top)
                continue
            pair = self._broken(node.offsets)
            if pair is not None:
                self._assert(node.edges)
                path.append((self._children(pair, node.offsets), node.edges))
                continue
            self.limit, self.best = node.top, node.offsets
            if self.limit <= enough:
                break
        bound = max(min(self.limit, unknown), enough)
        return PlacementSolution(self.best, self.limit, bound, given - self.steps)

    def _broken(self, offsets: Sequence[int]) -> Pair | None:
        """Return the unsatisfied pair whose smaller storage is largest, or None."""
        for seen, (i, j, low, high, exact) in enumerate(self.problem.forbidden_distances):
            distance = offsets[i] - offsets[j]
            if low < distance < high and distance not in exact:
                self.steps -= seen + 1
                return i, j
        self.steps -= len(self.problem.pairs)
        return None

    def _children(self, pair: Pair, offsets: Sequence[int]) -> list[_Node]:
        """Return the alternatives of a pair that stay below the limit, the most promising one last."""
        found: list[_Node] = []
        for edges in self.problem.alternatives(pair):
            self._assert(edges)
            raised = self._raised(offsets, edges)
            self._retract(edges)
            if raised is not None:
                found.append(_Node(self.problem.height(raised), raised, edges))
        return sorted(found, key=lambda node: (-node.top, -sum(node.offsets)))

    def _raised(self, offsets: Sequence[int], edges: Iterable[OffsetConstraint]) -> Sequence[int] | None:
        """Return the longest paths with new edges; None if they exceed the limit, as every cycle does."""
        raised, sizes = list(offsets), self.problem.sizes
        waiting = deque(edge.before for edge in edges)
        while waiting:
            before = waiting.popleft()
            for after, weight in self._after[before]:
                low = raised[before] + weight
                if low > raised[after]:
                    self.steps -= 1
                    if low + sizes[after] >= self.limit:
                        return None
                    raised[after] = low
                    waiting.append(after)
        return raised

    def _assert(self, edges: Iterable[OffsetConstraint]) -> None:
        for edge in edges:
            self._after[edge.before].append((edge.after, edge.weight))

    def _retract(self, edges: Iterable[OffsetConstraint]) -> None:
        for edge in edges:
            self._after[edge.before].remove((edge.after, edge.weight))


def solve(problem: PlacementProblem, limit: int, enough: int, steps: int) -> PlacementSolution:
    """Find the smallest plan below a limit.

    Args:
        limit: size in units that plans must stay below.
        enough: known lower bound, in units.
        steps: step limit; visited pairs and raised offsets count as steps.
    """
    if not problem.sizes:
        return PlacementSolution([], 0, 0, 0)
    return _Search(problem, limit, steps).run(enough)
