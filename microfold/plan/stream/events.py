"""Order in which rows are computed: on demand, from the results of a region back to its inputs.

No row is computed twice, and none before another row needs it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from msgspec import Struct

from microfold.ir.node import Value
from microfold.ops.rows import ROWS
from microfold.plan.stream.region import StreamRegion
from microfold.plan.stream.row_node import RowNode


class RowArrival(Struct, frozen=True):
    """Event: a row of an input arrives from the caller."""

    value: Value
    row: int


class Padding(Struct, frozen=True):
    """Event: rows of padding [first, last) are written."""

    value: Value
    first: int
    last: int


class Compute(Struct, frozen=True):
    """Event: a part of a node's result is computed."""

    node: RowNode
    part: int


Event = RowArrival | Padding | Compute


def events_of(region: StreamRegion) -> list[Event]:
    """Return all events, in order. The rows of each value are in order, with its padding around them."""
    return [*_Demand(region).events()]


class _Demand:
    """Progress of the region.

    Attributes:
        begun: values whose top padding is complete.
        there: number of available rows of each value, from the first one; bottom padding counts.
        done: number of computed parts of each node's result.
    """

    def __init__(self, region: StreamRegion):
        self.region = region
        self.begun: set[Value] = set()
        self.there: dict[Value, int] = dict.fromkeys((*region.inputs, *region.producers), 0)
        self.there |= {value: value.type.shape[ROWS] for value in region.sources}
        self.done: dict[RowNode, int] = dict.fromkeys(region.nodes, 0)

    def events(self) -> Iterator[Event]:
        # All results advance at the same pace: the one with the smallest completed part is next; of equals,
        # the first.
        wanted = [self.region.producers[value] for value in self.region.fronts]
        queue = [(0.0, index) for index in range(len(wanted))]
        while queue:
            known, index = queue[0]
            node = wanted[index]
            share = self.done[node] / len(node.parts)
            if share == 1.0:
                heapq.heappop(queue)
            elif share > known:  # other results have needed some of it since
                heapq.heapreplace(queue, (share, index))
            else:
                yield from self._compute(node)

    def _compute(self, wanted: RowNode) -> Iterator[Event]:
        """Compute the next part of a node's result, with everything that it needs."""
        waiting = [wanted]
        while waiting:
            node = waiting[-1]
            part = self.done[node]
            for value, (first, _) in node.reads(part):
                if first < 0:
                    yield from self._begin(value)
            found = next(((v, last) for v, (_, last) in node.reads(part) if self.there[v] < last), None)
            if found is None:
                yield from self._begin(node.output)
                yield Compute(node, part)
                self.done[node] = part + 1
                self.there[node.output] = node.written(part)[1]
                waiting.pop()
                continue
            missing, last = found
            there = self.there[missing]
            if there >= missing.type.shape[ROWS]:
                yield Padding(missing, there, last)
                self.there[missing] = last
            elif missing in self.region.producers:
                waiting.append(self.region.producers[missing])
            else:
                yield from self._begin(missing)
                yield RowArrival(missing, there)
                self.there[missing] += 1

    def _begin(self, value: Value) -> Iterator[Event]:
        """Write the top padding of a value, before its first row and before any reader."""
        above = self.region.above(value)
        if above and value not in self.begun:
            yield Padding(value, -above, 0)
        self.begun.add(value)
