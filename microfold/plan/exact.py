"""The smallest arena, and bounds that no arena can go below.

A choice of one alternative for every pair has a least solution: each offset is the longest path to it. So the
plans are searched by branch and bound over the alternatives of pairs that do not hold yet; the longest paths
so far are a bound for all that follows.

All limits are counted in steps: the same plan comes out on every machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from microfold.plan.problem import Edge, Pair, Problem
from microfold.support.frozen import frozen


@frozen
class Solution:
    """What a search came to, in units.

    Attributes:
        offsets: of the smallest plan below the limit that was given; None if none was found.
        size: of the smallest known plan: the limit, if none was found.
        bound: no plan is smaller than that.
        steps: that were taken.
    """

    offsets: Sequence[int] | None
    size: int
    bound: int
    steps: int


@frozen(eq=False)
class _Node:
    """The least offsets under some choices, the last of which are `edges`."""

    top: int
    offsets: Sequence[int]
    edges: tuple[Edge, ...]


class _Search:
    """Branch and bound, depth first.

    Attributes:
        limit: what plans must stay below: at first the caller's, then the best one's size.
        steps: that are left.
    """

    def __init__(self, problem: Problem, limit: int, steps: int):
        self.problem = problem
        self.limit = limit
        self.steps = steps
        self.best: Sequence[int] | None = None
        self._after: list[list[tuple[int, int]]] = [[] for _ in problem.sizes]

    def run(self, enough: int) -> Solution:
        """Search until a plan has the size `enough`, all are looked at, or no step is left."""
        start = [0] * len(self.problem.sizes)
        unknown, given = self.limit, self.steps
        # Of each node on the way down: what is left below it, and the edges that go with it.
        path: list[tuple[list[_Node], tuple[Edge, ...]]] = [([_Node(max(self.problem.sizes), start, ())], ())]
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
        return Solution(self.best, self.limit, bound, given - self.steps)

    def _broken(self, offsets: Sequence[int]) -> Pair | None:
        """The pair with the largest smaller storage of those that do not hold."""
        for seen, (i, j, low, high, exact) in enumerate(self.problem.apart):
            distance = offsets[i] - offsets[j]
            if low < distance < high and distance not in exact:
                self.steps -= seen + 1
                return i, j
        self.steps -= len(self.problem.pairs)
        return None

    def _children(self, pair: Pair, offsets: Sequence[int]) -> list[_Node]:
        """The alternatives of a pair that stay below the limit, the most promising one last."""
        found: list[_Node] = []
        for edges in self.problem.alternatives(pair):
            self._assert(edges)
            raised = self._raised(offsets, edges)
            self._retract(edges)
            if raised is not None:
                found.append(_Node(self.problem.height(raised), raised, edges))
        return sorted(found, key=lambda node: (-node.top, -sum(node.offsets)))

    def _raised(self, offsets: Sequence[int], edges: Iterable[Edge]) -> Sequence[int] | None:
        """The longest paths with new edges; None if they exceed the limit, as in every cycle they do."""
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

    def _assert(self, edges: Iterable[Edge]) -> None:
        for edge in edges:
            self._after[edge.before].append((edge.after, edge.weight))

    def _retract(self, edges: Iterable[Edge]) -> None:
        for edge in edges:
            self._after[edge.before].remove((edge.after, edge.weight))


def solve(problem: Problem, limit: int, enough: int, steps: int) -> Solution:
    """The smallest plan, if one is below a limit.

    Args:
        limit: units that plans must stay below.
        enough: units that no plan can go below.
        steps: pairs looked at and offsets raised, after which the search ends.
    """
    if not problem.sizes:
        return Solution([], 0, 0, 0)
    return _Search(problem, limit, steps).run(enough)
