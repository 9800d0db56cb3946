"""Changes the batch size of a network.

    graph @g(%x: int8[1,4,4,2]) -> (%y) {                   graph @g(%x: int8[8,4,4,2]) -> (%y) {
      %a: int8[1,4,4,2] = clip(%x) {...}              ->      %a: int8[8,4,4,2] = clip(%x) {...}
      %y: int8[1,32] = reshape(%a) {shape=(1, 32)}            %y: int8[8,32] = reshape(%a) {shape=(8, 32)}
    }                                                       }

Each sample keeps the bits that it has when it is computed alone. The samples therefore must stay separate:
along one axis of every value that depends on an input they are adjacent, possibly with several rows each, and
no operator may combine elements along that axis. Otherwise the pass rejects the graph and lists all places.
The axis is the first one of inputs and states, unless `axes` names another one; operators that move axes also
move it. Each sample has its own state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.errors import InputError, Problem, TypeRuleError, UnsupportedModelError
from microfold.ir.graph import Graph, State
from microfold.ir.node import EpilogueStep, Node, Value, describe, make_node
from microfold.ir.op import Op, Pattern
from microfold.ir.types import Array, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.image import layout_of
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.resize_bilinear import ResizeBilinear
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.normalize.l2_normalization import L2Normalization
from microfold.ops.normalize.log_softmax import LogSoftmax
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.recurrent.lstm import Lstm
from microfold.ops.recurrent.lstm_8x8_16 import Lstm8x8To16
from microfold.ops.recurrent.sequence_rnn import SequenceRnn
from microfold.ops.recurrent.svdf import Svdf
from microfold.ops.reduce.arg_max import ArgMax, ArgMin
from microfold.ops.reduce.cumsum import Cumsum
from microfold.ops.reduce.mean import Mean, Sum
from microfold.ops.reduce.quantized_reduce_prod import QuantizedReduceProd
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin, ReduceProd
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass


@module_pass(opt_level=0)
class ChangeBatch(Struct, frozen=True):
    """Change of the batch extent in all inputs.

    Attributes:
        batch: new batch size; None leaves the graph unchanged.
        axes: pairs (name of an input or state, its batch axis), e.g. axis 1 if time is the first axis. The
            default is the first axis. If `axes` is given, outputs may have the batch along any axis.

    Raises:
        InputError: the batch is not positive, or an input, state or axis does not exist.
        UnsupportedModelError: an operator mixes samples, or may mix them.
    """

    batch: int | None = None
    axes: tuple[tuple[str, int], ...] = ()

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        if self.batch is None:
            return graph
        if self.batch < 1:
            raise InputError(f"the batch must be positive; got {self.batch}")
        change = _Change(graph, self.batch, dict(self.axes))
        if change.old == change.new:
            context.declined(f"graph @{graph.name}", f"its batch is {self.batch}")
            return graph
        for node in graph.nodes:
            change.node(node)
        result = change.result()
        if change.problems:
            raise UnsupportedModelError(graph.name, change.problems)
        context.fired(f"graph @{graph.name}", f"its batch was {change.old}; it is {change.new}")
        return result


class _Case(Struct, frozen=True):
    """View of a node for rules.

    Attributes:
        operands: types before the change; None: absent.
        axes: batch axis of each operand; None: the operand does not depend on an input.
        result: type of the first result before the change.
        rows: maps an extent of the batch axis to the new extent.
        fits: returns whether an extent holds complete samples.
    """

    operands: tuple[TensorType | None, ...]
    axes: tuple[int | None, ...]
    result: TensorType
    rows: Callable[[int], int]
    fits: Callable[[int], bool]

    @property
    def x(self) -> TensorType:
        """Type of the first operand."""
        assert self.operands[0] is not None
        return self.operands[0]

    @property
    def axis(self) -> int:
        """Batch axis of the first operand that depends on an input."""
        return next(axis for axis in self.axes if axis is not None)

    @property
    def batched(self) -> tuple[bool, ...]:
        """Whether each operand depends on an input."""
        return tuple(axis is not None for axis in self.axes)


class _Change:
    """Graph with the new batch while it is built.

    Attributes:
        values: new value of each value that depends on an input.
        axes: batch axis of each of these values.
        moves: whether outputs may have the batch along another axis than the first.
    """

    def __init__(self, graph: Graph, batch: int, axes: Mapping[str, int]):
        self.graph = graph
        self.new = batch
        self.problems: list[Problem] = []
        self.moves = bool(axes)
        starts = (*graph.inputs, *(state.value for state in graph.state))
        self.axes = {value: _axis_of(value, axes) for value in starts}
        unknown = sorted(set(axes) - {value.name for value in starts})
        if unknown:
            names = ", ".join(repr(value.name) for value in starts) or "none"
            raise InputError(f"unknown input or state {', '.join(map(repr, unknown))}; known: {names}")
        firsts = {value.type.shape[self.axes[value] :][:1] for value in graph.inputs}
        if len(firsts) != 1 or not (first := firsts.pop()):
            inputs = ", ".join(f"{value.name!r} {value.type}" for value in graph.inputs) or "none"
            where, rule = f"graph {graph.name!r}", "all inputs must have the batch as their first dimension"
            raise UnsupportedModelError(graph.name, [Problem(where, f"{rule}; they are {inputs}")])
        self.old = first[0]
        self.values: dict[Value, Value] = {}
        self.constants: dict[Value, Array] = dict(graph.constants)
        self.nodes: list[Node] = []
        for value in starts:
            if not self.fits(value.type.shape[self.axes[value]] if value.type.shape else 0):
                self.problem(f"state {value.name!r}", f"{value.type} does not hold a batch of {self.old}")
            else:
                self.values[value] = self.grown(value, self.axes[value])

    def grown(self, value: Value, axis: int) -> Value:
        """Return a value with the extent of the new batch."""
        shape = [*(value.type.shape or (self.old,))]
        shape[axis] = self.rows(shape[axis])
        return Value(value.name, value.type.with_shape(tuple(shape)))

    def fits(self, extent: int) -> bool:
        """Return whether an extent holds the same number of rows, at least one, for each sample."""
        return extent > 0 and extent % self.old == 0

    def rows(self, before: int) -> int:
        """Return the new extent for all samples."""
        return before // self.old * self.new

    def problem(self, where: str, reason: str) -> None:
        self.problems.append(Problem(where, reason))

    def node(self, node: Node) -> None:
        """Add the node that computes the same function for the new batch."""
        if not any(value in self.values for value in node.operands):
            self.nodes.append(node)
            return
        try:
            self._change(node)
        except TypeRuleError as error:
            self.problem(describe(node), str(error))
            for value in node.outputs:
                axis = min(self._axis(*node.operands), max(value.type.rank - 1, 0))
                self.values[value], self.axes[value] = self.grown(value, axis), axis

    def _axis(self, *operands: Value | None) -> int:
        """Return the batch axis of the first of these operands that depends on an input."""
        return next(self.axes[value] for value in operands if value in self.values)

    def _change(self, node: Node) -> None:
        operands = list(node.inputs)
        running = replace(node, epilogue=()).infer()[0] if node.outputs else None
        op, axis = node.op, self._axis(*node.operands)
        if isinstance(op, Concatenate):
            operands = [self._repeated(value, axis) if value is not None else None for value in operands]
        if running is not None:
            types = tuple(value.type if value is not None else None for value in node.inputs)
            axes = tuple(self._batch_axis(value) for value in node.inputs)
            if any(each is not None for each in axes):
                op, axis = _apply(op, _Case(types, axes, running, self.rows, self.fits))
        steps: list[EpilogueStep] = []
        for step in node.epilogue:
            assert running is not None
            op_types = (running, *(value.type for value in step.operands))
            axes = (axis, *(self._batch_axis(value) for value in step.operands))
            after = step.op.infer_all(op_types)[0]
            changed, axis = _apply(step.op, _Case(op_types, axes, after, self.rows, self.fits))
            steps.append(EpilogueStep(changed, tuple(self.values.get(v, v) for v in step.operands)))
            running = after
        inputs = [self.values.get(v, v) if v is not None else None for v in operands]
        made = make_node(op, inputs, [value.name for value in node.outputs], steps)
        for old, new in zip(node.outputs, made.outputs, strict=True):
            # Further results, for example a state, have the batch along the axis of the first result, or axis
            # 0.
            found = [a for a in dict.fromkeys((axis, 0)) if a < old.type.rank and self._holds(old, new, a)]
            if not found:
                raise TypeRuleError(f"{op.name}: {old.type} becomes {new.type}, which holds no batch")
            self.axes[old] = found[0]
        self.values |= dict(zip(node.outputs, made.outputs, strict=True))
        self.nodes.append(made)

    def _holds(self, old: Value, new: Value, axis: int) -> bool:
        return self.fits(old.type.shape[axis]) and new.type == self.grown(old, axis).type

    def _batch_axis(self, value: Value | None) -> int | None:
        return self.axes[value] if value is not None and value in self.values else None

    def _repeated(self, value: Value, axis: int) -> Value:
        """Repeat a constant that is combined with values of a batch, once for each sample."""
        if value in self.values or value not in self.constants:
            return value
        array = self._each_sample(self.constants[value], axis, f"constant {value.name!r}")
        repeated = Value(value.name, value.type.with_shape(array.shape))
        self.constants[repeated] = array
        return repeated

    def _each_sample(self, array: Array, axis: int, where: str) -> Array:
        """Repeat the rows of one sample for all samples. The samples must be equal before the change."""
        samples = np.split(array, self.old, axis)
        if any(sample.tobytes() != samples[0].tobytes() for sample in samples):
            self.problem(where, f"its content differs between the {self.old} samples")
        return np.concatenate([samples[0]] * self.new, axis)

    def _state(self, state: State) -> State:
        where, axis = f"state {state.value.name!r}", self.axes[state.value]
        after = self.values.get(state.next) or self._repeated(state.next, axis)
        if after.type != self.values[state.value].type:
            self.problem(where, f"its next content %{state.next.name} does not depend on an input")
        return State(self.values[state.value], self._each_sample(state.initial, axis, where), after)

    def _output(self, value: Value) -> Value:
        axis = self.axes.get(value, 0)
        after = self.values.get(value) or self._repeated(value, axis)
        if after.type != self.grown(value, axis).type:
            self.problem(f"output {value.name!r}", "it does not depend on an input")
        elif axis and not self.moves:
            self.problem(f"output {value.name!r}", f"its batch would be axis {axis}; pass axes to allow this")
        return after

    def result(self) -> Graph:
        """Return the graph with the new batch."""
        state = tuple(self._state(s) for s in self.graph.state if s.value in self.values)
        graph = replace(
            self.graph,
            inputs=tuple(self.values[value] for value in self.graph.inputs),
            outputs=tuple(self._output(value) for value in self.graph.outputs),
            state=state,
        )
        return graph.with_nodes(self.nodes, constants=self.constants)


def _axis_of(value: Value, axes: Mapping[str, int]) -> int:
    """Return the batch axis of an input or state."""
    axis = axes.get(value.name, 0)
    if axis and not 0 <= axis < value.type.rank:
        raise InputError(f"the axis of {value.name!r} must be below {value.type.rank}; got {axis}")
    return axis


def _apply(op: Op, case: _Case) -> tuple[Op, int]:
    """Return the operator for the new batch, and the batch axis of its result.

    Raises:
        TypeRuleError: the operator mixes samples, or has no rule.
    """
    rule = next((_RULES[base] for base in type(op).__mro__ if base in _RULES), None)
    if rule is None and op.pattern in (Pattern.ELEMENTWISE, Pattern.BROADCAST):
        rule = _broadcast
    if rule is None:
        raise TypeRuleError(f"{op.name} has no rule for batches")
    answer = rule(op, case)
    if isinstance(answer, str):
        raise TypeRuleError(f"{op.name} {answer}")
    return answer


# Returns the operator for the new batch and the batch axis of its result, or a description of the violation.
Rule = Callable[[Any, _Case], "tuple[Op, int] | str"]


def _broadcast(op: Op, case: _Case) -> tuple[Op, int] | str:
    rank = case.result.rank
    found = {
        axis + rank - type.rank
        for type, axis in zip(case.operands, case.axes, strict=True)
        if type is not None and axis is not None
    }
    if len(found) > 1:
        return f"combines batches along axes {', '.join(map(str, sorted(found)))} of {case.result}"
    (axis,) = found
    for type, batched in zip(case.operands, case.batched, strict=True):
        if type is None:
            continue
        own = axis - (rank - type.rank)
        if batched and type.shape[own] != case.result.shape[axis]:
            return f"broadcasts the batch of {type} over {case.result}"
        if not batched and own >= 0 and type.rank and type.shape[own] != 1:
            return f"reads different rows of {type} for different samples"
    return op, axis


def _rows(op: Op, case: _Case) -> tuple[Op, int] | str:
    """Rule of operators that compute each row of the first operand with the same other operands."""
    layout = layout_of(op)
    first = layout.index("N") if layout is not None and layout.isalpha() else 0
    if not case.batched[0] or any(case.batched[1:]):
        return "computes with weights that depend on an input"
    if case.axis != first:
        return (
            f"has its batch along axis {first}, not {case.axis}"
            if layout
            else "sums along the axis of the batch"
        )
    return op, first


def _last_axis(op: Op, case: _Case) -> tuple[Op, int] | str:
    if case.axis == case.x.rank - 1:
        return f"works along the {'only' if case.x.rank == 1 else 'last'} axis of {case.x}"
    return op, case.axis


def _axis(op: ArgMax | ArgMin | Cumsum | Concatenate | Gather, case: _Case) -> tuple[Op, int] | str:
    along = op.axis % case.result.rank if isinstance(op, Concatenate) else op.axis % case.x.rank
    if along == case.axis:
        return "works along the axis of the batch"
    if isinstance(op, Concatenate) and len({axis for axis in case.axes if axis is not None}) > 1:
        return "combines batches along different axes"
    if isinstance(op, Gather) and not (case.batched[0] and not case.batched[1]):
        return "has indices that depend on an input"
    behind = case.axis > along
    return op, case.axis + (case.result.rank - case.x.rank if behind else 0)


def _axes(op: Mean | Sum | ReduceMax | ReduceMin | ReduceProd, case: _Case) -> tuple[Op, int] | str:
    if case.axis in op.axes:
        return "works along the axis of the batch"
    gone = 0 if case.result.rank == case.x.rank else sum(axis < case.axis for axis in op.axes)
    return op, case.axis - gone


def _pad(op: Pad, case: _Case) -> tuple[Op, int] | str:
    return (op, case.axis) if op.padding[case.axis] == (0, 0) else "pads the axis of the batch"


def _reshape(op: Reshape, case: _Case) -> tuple[Op, int] | str:
    if not op.shape:
        return "drops the batch"
    before = math.prod(case.x.shape[: case.axis])
    for axis, extent in enumerate(op.shape):
        if math.prod(op.shape[:axis]) == before and case.fits(extent):
            return replace(op, shape=_with_extent(op.shape, axis, case.rows(extent))), axis
    return f"puts the batch of {case.x} together with other axes of {list(op.shape)}"


def _with_extent(shape: tuple[int, ...], axis: int, extent: int) -> tuple[int, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _broadcast_to(op: BroadcastTo, case: _Case) -> tuple[Op, int] | str:
    axis = case.axis + len(op.shape) - case.x.rank
    if case.x.shape[case.axis] != op.shape[axis] or (case.axis == 0 < axis):
        return f"broadcasts the batch of {case.x} to {list(op.shape)}"
    return replace(op, shape=_with_extent(op.shape, axis, case.rows(op.shape[axis]))), axis


def _transpose(op: Transpose, case: _Case) -> tuple[Op, int] | str:
    return op, op.permutation.index(case.axis)


def _strided_slice(op: StridedSlice, case: _Case) -> tuple[Op, int] | str:
    axis = case.axis
    if (op.begin[axis], op.size[axis], op.strides[axis]) != (0, case.x.shape[axis], 1):
        return "selects a part of the batch"
    return replace(op, size=_with_extent(op.size, axis, case.rows(op.size[axis]))), axis


def _batch_matmul(op: BatchMatmul, case: _Case) -> tuple[Op, int] | str:
    first, second = case.operands
    assert first is not None
    assert second is not None
    if case.batched == (True, False) and case.axis == first.rank - 2:
        if op.transpose_first or second.rank != 2:
            return "sums along the axis of the batch"
        return op, case.result.rank - 2
    for type, axis in zip(case.operands, case.axes, strict=True):
        assert type is not None
        if axis is not None and axis >= type.rank - 2:
            return "mixes the rows of a matrix that depends on an input"
    return _broadcast(op, case)


def _svdf(op: Svdf, case: _Case) -> tuple[Op, int] | str:
    if case.axes != (0, None, None, None, 0):
        return "computes with weights that depend on an input, or along the axis of the batch"
    return op, 0


def _sequence(op: Lstm | Lstm8x8To16 | SequenceRnn, case: _Case) -> tuple[Op, int] | str:
    first = 1 if op.time_major else 0
    if case.axes[0] != first:
        return f"has its batch along axis {first}"
    samples = (4,) if isinstance(op, SequenceRnn) else (4, 5)
    if {i: axis for i, axis in enumerate(case.axes) if axis is not None and i} != dict.fromkeys(samples, 0):
        return "computes with weights that depend on an input"
    return op, first


_RULES: Mapping[type[Op], Rule] = {
    **dict.fromkeys((Conv2D, DepthwiseConv2D, TransposeConv2D, FullyConnected), _rows),
    **dict.fromkeys((AveragePool2D, MaxPool2D, ResizeBilinear, ResizeNearestNeighbor), _rows),
    **dict.fromkeys((Softmax, LogSoftmax, L2Normalization), _last_axis),
    **dict.fromkeys((ArgMax, ArgMin, Cumsum, Concatenate, Gather), _axis),
    **dict.fromkeys((Mean, Sum, ReduceMax, ReduceMin, ReduceProd, QuantizedReduceProd), _axes),
    Pad: _pad,
    Reshape: _reshape,
    BroadcastTo: _broadcast_to,
    Transpose: _transpose,
    StridedSlice: _strided_slice,
    BatchMatmul: _batch_matmul,
    Lstm: _sequence,
    Lstm8x8To16: _sequence,
    SequenceRnn: _sequence,
    Svdf: _svdf,
}
