"""Which rows of a network's values follow from which frames, and which of them each run computes.

A run takes `step` new frames. Behind the network's strides, a value moves on by `step * rate` rows, so that
the last rows of the window are new and the others are those of earlier runs, as many rows back. That holds
for rows that follow from frames alone. A row that follows from padding, too, is another one in every run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property

from microfold.errors import InputError, Problem
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe
from microfold.support.frozen import frozen
from microfold.transform.requested.sliding.rules import Answer, Case, Head, Rows, RowWise, follow


@frozen
class Track:
    """Where a value's rows are.

    Attributes:
        axis: along which they lie.
        length: how many there are for a window of frames.
        rate: rows by which it moves on for each frame.
    """

    axis: int
    length: int
    rate: Fraction


class Tracking:
    """The rows of all values of a graph.

    Args:
        graph: its only input slides; it has no state, and no dead nodes.
        axis: of the input.
        step: frames that a run takes; None: the fewest that move all values on by whole rows.

    Attributes:
        tracks: of the values that have rows; those with a single row are computed in each run.
        nodes: how each node follows that reads such values.
        problems: all places where rows do not follow from frames alone.
        step: frames that a run takes.

    Raises:
        InputError: a run cannot take so many frames.
    """

    def __init__(self, graph: Graph, axis: int, step: int | None):
        self.graph = graph
        self.problems: dict[Node, str] = {}
        self.nodes: dict[Node, Answer] = {}
        (frames,) = graph.inputs
        self.frames = frames
        length = frames.type.shape[axis]
        self.tracks: dict[Value, Track] = {frames: Track(axis, length, Fraction(1))}
        self._changing: set[Value] = set()
        self._behind_problems: set[Value] = set()
        for node in graph.nodes:
            self._look(node)
        least = math.lcm(*(track.rate.denominator for track in self.tracks.values()))
        self.step = least if step is None else step
        if self.step % least or not 0 < self.step < length:
            raise InputError(
                f"a run must take a multiple of {least} frames, by the network's strides, and fewer than the "
                f"{length} of its window; it is to take {self.step}"
            )

    def _look(self, node: Node) -> None:
        """Follow the rows through a node."""
        if not self._behind_problems.isdisjoint(node.operands):
            self._behind_problems.update(node.outputs)
        operands = [value for value in node.operands if value in self.tracks]
        if not operands:
            if any(value in self._changing for value in node.operands):
                self._changing.update(node.outputs)
            return
        answer = self._answer(node)
        if isinstance(answer, RowWise):
            answer = self._checked(node, answer)
        if isinstance(answer, RowWise) and node.output.type.shape[answer.axis] > 1:
            self.tracks[node.output] = self._track(node, answer)
        else:
            self._changing.update(node.outputs)
        self.nodes[node] = answer
        # What follows from one problem is not another one.
        if isinstance(answer, str) and self._behind_problems.isdisjoint(node.outputs):
            self.problems[node] = answer
            self._behind_problems.update(node.outputs)

    def _answer(self, node: Node) -> Answer:
        if node.epilogue or len(node.outputs) != 1:
            return f"what {node.op.name} does along the axis is not known"
        types = tuple(value.type if value is not None else None for value in node.inputs)
        axes = tuple(
            self.tracks[value].axis if value is not None and value in self.tracks else None
            for value in node.inputs
        )
        return follow(node.op, Case(types, axes, node.output.type))

    def _checked(self, node: Node, answer: RowWise) -> RowWise | str:
        """The answer, if everything that it reads moves alike."""
        rates: set[Fraction] = set()
        for value, reads in zip(node.inputs, answer.reads, strict=True):
            if value in self._changing:
                return f"it reads %{value.brief}, which follows from all rows"
            if value is not None and reads is not None:
                rates.add(self.tracks[value].rate * reads.group / reads.stride)
        return answer if len(rates) == 1 else "its operands move on by different numbers of rows"

    def _track(self, node: Node, answer: RowWise) -> Track:
        value, reads = next(
            (value, reads)
            for value, reads in zip(node.inputs, answer.reads, strict=True)
            if value is not None and reads is not None
        )
        rate = self.tracks[value].rate * reads.group / reads.stride
        return Track(answer.axis, node.output.type.shape[answer.axis], rate)

    @property
    def heads(self) -> list[Node]:
        """The nodes that take all rows together."""
        return [node for node, answer in self.nodes.items() if isinstance(answer, Head)]

    def moves(self, value: Value) -> int:
        """Rows by which a value moves on from run to run."""
        return int(self.tracks[value].rate * self.step)

    @cached_property
    def demanded(self) -> Mapping[Value, Rows]:
        """The rows of each value with several that outputs follow from. Finds padding among the operands'."""
        found: dict[Value, Rows] = {}

        def want(value: Value, rows: Rows) -> None:
            if value in self.tracks:
                before = found.get(value, rows)
                found[value] = min(before[0], rows[0]), max(before[1], rows[1])

        for value in self.graph.outputs:
            want(value, self.whole(value))
        for node in reversed(self.graph.nodes):
            answer = self.nodes.get(node)
            if isinstance(answer, RowWise) and node.output in found:
                found[node.output] = _whole_groups(found[node.output], answer)
            for index, value in enumerate(node.inputs):
                if value is None or value not in self.tracks:
                    continue
                rows = self.whole(value)
                reads = answer.reads[index] if isinstance(answer, RowWise) else None
                if reads is not None:
                    first, last = reads.of(found.get(node.output, (0, 1)))
                    if first < rows[0] or last > rows[1]:
                        self.problems[node] = (
                            f"it pads the axis: its rows read {max(0, -first)} before the first of "
                            f"{rows[1]} and {max(0, last - rows[1])} behind the last"
                        )
                    rows = max(first, rows[0]), min(last, rows[1])
                want(value, rows)
        return found

    def whole(self, value: Value) -> Rows:
        """All rows of a value."""
        return (0, self.tracks[value].length) if value in self.tracks else (0, 1)

    def macs(self) -> int:
        """Multiply-accumulates of a run that keeps all rows that follow from frames alone."""
        pure: dict[Value, Rows] = {self.frames: self.whole(self.frames)}
        total = 0
        for node in self.graph.nodes:
            macs = node.macs()
            if node.outputs and node.outputs[0] in self.tracks:
                length = self.tracks[node.output].length
                first, last = pure[node.output] = self.pure_rows(node, pure)
                kept = max(0, last - first - self.moves(node.output))
                macs = macs * (length - kept) // length
            total += macs
        return total

    def pure_rows(self, node: Node, pure: Mapping[Value, Rows]) -> Rows:
        """The rows of a result that follow from frames alone, given those of its operands."""
        answer = self.nodes[node]
        assert isinstance(answer, RowWise)
        first, last = self.whole(node.output)
        for value, reads in zip(node.inputs, answer.reads, strict=True):
            if value is not None and reads is not None:
                begin, end = reads.within(pure[value])
                first, last = max(first, begin), min(last, end)
        return first, max(first, last)

    def problem_list(self) -> list[Problem]:
        """All problems, in the graph's order."""
        _ = self.demanded
        return [
            Problem(describe(node), self.problems[node]) for node in self.graph.nodes if node in self.problems
        ]


def _whole_groups(rows: Rows, answer: RowWise) -> Rows:
    """The rows, and what is missing of groups."""
    group = math.lcm(*(reads.group for reads in answer.reads if reads is not None))
    return rows[0] // group * group, -(-rows[1] // group) * group
