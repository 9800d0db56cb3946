"""Analysis of the rows of a network's values: which frames they depend on, and which rows a run computes.

A run processes `step` new frames. Because of the network's strides, a value advances by `step * rate` rows:
the last rows of the window are new, and the others are rows of earlier runs, shifted by this number. That is
valid for rows that depend on frames only. A row that also depends on padding changes in every run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property

from msgspec import Struct

from microfold.errors import InputError, Problem
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe
from microfold.transform.requested.sliding.rules import Answer, Case, RowCombination, Rows, RowWise, follow


class Track(Struct, frozen=True):
    """Position and rate of a value's rows.

    Attributes:
        axis: axis of the rows.
        length: number of rows for a window of frames.
        rate: number of rows by which the value advances per frame.
    """

    axis: int
    length: int
    rate: Fraction


class Tracking:
    """Rows of all values of a graph.

    Args:
        graph: graph without state and dead nodes, whose only input slides.
        axis: axis of the frames in the input.
        step: frames per run; None: the minimum that advances all values by whole rows.

    Attributes:
        tracks: rows of the values that have several; values with a single row are computed in each run.
        nodes: answer of the rule for each node that reads one of these values.
        problems: all nodes whose rows do not depend on frames only, with the reason.
        step: frames per run.

    Raises:
        InputError: a run cannot process this number of frames.
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
                f"the frames per run must be a multiple of {least} (by the strides), and fewer than the "
                f"{length} of its window; got {self.step}"
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
        # Report only the first of several problems along a path.
        if isinstance(answer, str) and self._behind_problems.isdisjoint(node.outputs):
            self.problems[node] = answer
            self._behind_problems.update(node.outputs)

    def _answer(self, node: Node) -> Answer:
        if node.epilogue or len(node.outputs) != 1:
            return f"{node.op.name} with several results or an epilogue has no rule for rows"
        types = tuple(value.type if value is not None else None for value in node.inputs)
        axes = tuple(
            self.tracks[value].axis if value is not None and value in self.tracks else None
            for value in node.inputs
        )
        return follow(node.op, Case(types, axes, node.output.type))

    def _checked(self, node: Node, answer: RowWise) -> RowWise | str:
        """Return the answer if all operands with rows advance at the same rate."""
        rates: set[Fraction] = set()
        for value, reads in zip(node.inputs, answer.reads, strict=True):
            if value in self._changing:
                return f"it reads %{value.short_name}, which depends on all rows"
            if value is not None and reads is not None:
                rates.add(self.tracks[value].rate * reads.group / reads.stride)
        return answer if len(rates) == 1 else "its operands advance by different numbers of rows"

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
        """Nodes that combine all rows."""
        return [node for node, answer in self.nodes.items() if isinstance(answer, RowCombination)]

    def moves(self, value: Value) -> int:
        """Return the number of rows by which a value advances per run."""
        return int(self.tracks[value].rate * self.step)

    @cached_property
    def demanded(self) -> Mapping[Value, Rows]:
        """Rows of each value with several rows that outputs depend on. Also records padding as a problem."""
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
                            f"{rows[1]} and {max(0, last - rows[1])} after the last"
                        )
                    rows = max(first, rows[0]), min(last, rows[1])
                want(value, rows)
        return found

    def whole(self, value: Value) -> Rows:
        """Return all rows of a value."""
        return (0, self.tracks[value].length) if value in self.tracks else (0, 1)

    def macs(self) -> int:
        """Return the multiply-accumulates of a run that reuses all rows that depend on frames only."""
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
        """Return the result rows that depend on frames only, given the corresponding rows of the operands."""
        answer = self.nodes[node]
        assert isinstance(answer, RowWise)
        first, last = self.whole(node.output)
        for value, reads in zip(node.inputs, answer.reads, strict=True):
            if value is not None and reads is not None:
                begin, end = reads.within(pure[value])
                first, last = max(first, begin), min(last, end)
        return first, max(first, last)

    def problem_list(self) -> list[Problem]:
        """Return all problems, in the order of the graph."""
        _ = self.demanded
        return [
            Problem(describe(node), self.problems[node]) for node in self.graph.nodes if node in self.problems
        ]


def _whole_groups(rows: Rows, answer: RowWise) -> Rows:
    """Extend rows to complete groups."""
    group = math.lcm(*(reads.group for reads in answer.reads if reads is not None))
    return rows[0] // group * group, -(-rows[1] // group) * group
