"""Construction of the graph of one run: it computes new rows from kept rows of the operands."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from microfold.ir.graph import Graph, State
from microfold.ir.interpret import Interpreter
from microfold.ir.node import EpilogueStep, Node, Value, make_node
from microfold.ir.types import Array, Tensor
from microfold.ops.movement.shift_in import ShiftIn
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.transform.requested.sliding.rules import Rows, RowWise
from microfold.transform.requested.sliding.tracking import Tracking


class KeptRows(Struct, frozen=True):
    """Value that keeps rows of earlier runs.

    Attributes:
        tensor: name of the value.
        rows: number of kept rows, including the rows of this run.
        added: number of rows that a run computes.
        bytes: size of all kept rows, in bytes.
    """

    tensor: str
    rows: int
    added: int
    bytes: int


class Builder:
    """Builds the graph of one run.

    Args:
        tracking: analysis of a graph without problems.

    Attributes:
        kept: values that keep rows of earlier runs.
        computed: nodes that replace the nodes of the window's graph; filled by `build`.
    """

    def __init__(self, tracking: Tracking):
        self.tracking = tracking
        self.graph = tracking.graph
        self.kept: list[KeptRows] = []
        self.computed: list[Node] = []
        self._nodes: list[Node] = []
        self._state: list[State] = []
        self._values: dict[Value, Value] = {}
        # Available part of each value that has rows: the new value, and the range of its rows.
        self._rows: dict[Value, tuple[Value, Rows]] = {}
        self._parts: dict[tuple[Value, Rows], Value] = {}
        self._needed = self._first_rows_needed()
        self._steady = _steady_values(self.graph)

    def build(self) -> Graph:
        """Return the graph of one run."""
        frames = self.tracking.frames
        given = Value(frames.name, frames.type.with_shape(self._shape(frames, self.tracking.step)))
        self._keep(frames, given)
        for node in self.graph.nodes:
            self._add(node)
        outputs = tuple(self._whole(value) for value in self.graph.outputs)
        graph = Graph(
            self.graph.name,
            (given,),
            outputs,
            (),
            self.graph.constants,
            tuple(self._state),
            self.graph.subgraphs,
        )
        return graph.with_nodes(self._nodes)

    def _new(self, value: Value) -> Rows:
        """Return the rows of a value that a run computes: the last rows that have readers."""
        if value is self.tracking.frames:
            length = self.tracking.tracks[value].length
            return length - self.tracking.step, length
        first, last = self.tracking.demanded[value]
        return max(first, last - self.tracking.moves(value)), last

    def _reads(self, node: Node, index: int) -> Rows:
        """Return the operand rows from which a run computes its rows of a node's result."""
        value = node.inputs[index]
        assert value is not None
        answer = self.tracking.nodes.get(node)
        reads = answer.reads[index] if isinstance(answer, RowWise) else None
        if reads is None:
            return self.tracking.whole(value)
        result = node.output
        return reads.of(self._new(result) if result in self.tracking.tracks else (0, 1))

    def _first_rows_needed(self) -> Mapping[Value, int]:
        """Return the oldest row of each value that a run reads."""
        tracked, demanded = self.tracking.tracks, self.tracking.demanded
        found = {value: self._new(value)[0] for value in demanded}
        for node in self.graph.nodes:
            for index, value in enumerate(node.inputs):
                if value is not None and value in tracked:
                    found[value] = min(found[value], self._reads(node, index)[0])
        return found | {value: 0 for value in self.graph.outputs if value in tracked}

    def _shape(self, value: Value, rows: int) -> tuple[int, ...]:
        axis, shape = self.tracking.tracks[value].axis, value.type.shape
        return (*shape[:axis], rows, *shape[axis + 1 :])

    def _add(self, node: Node) -> None:
        """Add the node that computes this run's rows; the same node if its operands have not changed."""
        answer = self.tracking.nodes.get(node)
        if answer is None:
            inputs = [self._values.get(v, v) if v is not None else None for v in node.inputs]
            op = node.op
        else:
            inputs = [self._operand(node, index) for index in range(len(node.inputs))]
            first, last = self._new(node.output) if node.output in self.tracking.tracks else (0, 1)
            op = answer.op(last - first) if isinstance(answer, RowWise) else node.op
        if inputs == list(node.inputs) and op == node.op and not node.epilogue:
            self.computed.append(node)
            self._nodes.append(node)
            return
        made = make_node(op, inputs, [value.name for value in node.outputs], self._epilogue(node))
        self.computed.append(made)
        self._nodes.append(made)
        for before, after in zip(node.outputs, made.outputs, strict=True):
            self._values[before] = after
            if before in self.tracking.tracks:
                self._keep(before, after)

    def _epilogue(self, node: Node) -> tuple[EpilogueStep, ...]:
        return tuple(
            EpilogueStep(step.op, tuple(self._values.get(v, v) for v in step.operands))
            for step in node.epilogue
        )

    def _operand(self, node: Node, index: int) -> Value | None:
        value = node.inputs[index]
        if value is None or value not in self.tracking.tracks:
            return self._values.get(value, value) if value is not None else None
        return self._part(value, self._reads(node, index))

    def _whole(self, value: Value) -> Value:
        if value in self.tracking.tracks:
            return self._part(value, self.tracking.whole(value))
        return self._values.get(value, value)

    def _part(self, value: Value, rows: Rows) -> Value:
        """Return a range of the available rows of a value."""
        there, (first, last) = self._rows[value]
        if rows == (first, last):
            return there
        if (value, rows) not in self._parts:
            axis = self.tracking.tracks[value].axis
            begin = [0] * value.type.rank
            begin[axis] = rows[0] - first
            size = self._shape(value, rows[1] - rows[0])
            op = StridedSlice(tuple(begin), size, (1,) * value.type.rank)
            node = make_node(op, [there], [f"{value.name}_rows"])
            self._nodes.append(node)
            self._parts[value, rows] = node.output
        return self._parts[value, rows]

    def _keep(self, value: Value, new: Value) -> None:
        """Provide the rows of a value that later nodes read: rows of earlier runs, then the new ones."""
        first, last = self._new(value)
        self._rows[value] = new, (first, last)
        oldest = self._needed[value]
        if oldest == first:
            return
        axis = self.tracking.tracks[value].axis
        state = Value(f"{value.name}_kept", new.type.with_shape(self._shape(value, last - oldest)))
        node = make_node(ShiftIn(axis), [state, new], [f"{value.name}_window"])
        self._nodes.append(node)
        index = (slice(None),) * axis + (slice(oldest, last),)
        self._state.append(State(state, np.ascontiguousarray(self._steady[value][index]), node.output))
        self._rows[value] = node.output, (oldest, last)
        self.kept.append(KeptRows(value.name, last - oldest, last - first, state.type.nbytes))


def zeros(value: Value) -> Array:
    """Return an array of real zeros for a value."""
    quant = value.type.quant
    zero = quant.zero_points[0] if quant is not None else 0
    return np.full(value.type.shape, zero, value.type.dtype.numpy)


def _steady_values(graph: Graph) -> Mapping[Value, Array]:
    """Return all values that a graph computes from frames of zeros."""
    found: dict[Value, Array] = {value: zeros(value) for value in graph.inputs}

    def collect(node: Node, results: tuple[Tensor, ...]) -> None:
        found.update(zip(node.outputs, (result.data for result in results), strict=True))

    def unknown(node: Node) -> list[Array]:
        return [np.zeros(value.type.shape, value.type.dtype.numpy) for value in node.outputs]

    Interpreter(graph).run(*(found[value] for value in graph.inputs), observe=collect, missing=unknown)
    return found
