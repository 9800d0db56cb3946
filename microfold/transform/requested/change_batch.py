"""Gives a network another batch size.

    graph @g(%x: int8[1,4,4,2]) -> (%y) {                   graph @g(%x: int8[8,4,4,2]) -> (%y) {
      %a: int8[1,4,4,2] = clip(%x) {...}              ->      %a: int8[8,4,4,2] = clip(%x) {...}
      %y: int8[1,32] = reshape(%a) {shape=(1, 32)}            %y: int8[8,32] = reshape(%a) {shape=(8, 32)}
    }                                                       }

Each sample gives the bits that it gave alone. For that, the samples must stay apart: they lie one behind the
other along the first axis of every value that depends on an input, several rows each perhaps, and no operator
may work along that axis. Where one does, the graph is refused with all such places. Each sample has its own
state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from microfold.errors import InputError, Problem, TypeRuleError, UnsupportedModelError
from microfold.ir.graph import Graph, State
from microfold.ir.node import Node, Step, Value, describe, make_node
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
from microfold.support.frozen import frozen


@module_pass(opt_level=0)
@frozen
class ChangeBatch:
    """Change the first dimension of all inputs.

    Attributes:
        batch: the new one; None leaves the graph as it is.

    Raises:
        InputError: the batch is not positive.
        UnsupportedModelError: an operator mixes samples, or cannot be told not to.
    """

    batch: int | None = None

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        if self.batch is None:
            return graph
        if self.batch < 1:
            raise InputError(f"the batch must be positive; it is {self.batch}")
        change = _Change(graph, self.batch)
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


@frozen
class _Case:
    """A node as a rule sees it.

    Attributes:
        operands: types before the change; None: absent.
        batched: which operands depend on an input.
        result: type of the first result before the change.
        rows: the first dimension that follows from one before.
    """

    operands: tuple[TensorType | None, ...]
    batched: tuple[bool, ...]
    result: TensorType
    rows: Callable[[int], int]

    @property
    def x(self) -> TensorType:
        """The first operand."""
        assert self.operands[0] is not None
        return self.operands[0]


class _Change:
    """The graph that is being built.

    Attributes:
        values: what stands for values that depend on an input.
    """

    def __init__(self, graph: Graph, batch: int):
        self.graph = graph
        self.new = batch
        self.problems: list[Problem] = []
        firsts = {value.type.shape[:1] for value in graph.inputs}
        if len(firsts) != 1 or not (first := firsts.pop()):
            inputs = ", ".join(f"{value.name!r} {value.type}" for value in graph.inputs) or "none"
            where, rule = f"graph {graph.name!r}", "all inputs must have the batch as their first dimension"
            raise UnsupportedModelError(graph.name, [Problem(where, f"{rule}; they are {inputs}")])
        self.old = first[0]
        self.values: dict[Value, Value] = {}
        self.constants: dict[Value, Array] = dict(graph.constants)
        self.nodes: list[Node] = []
        for value in (*graph.inputs, *(state.value for state in graph.state)):
            shape = value.type.shape
            if not shape or shape[0] % self.old:
                self.problem(f"state {value.name!r}", f"{value.type} holds no batch of {self.old}")
            else:
                self.values[value] = self.grown(value)

    def grown(self, value: Value) -> Value:
        """A value of the new batch."""
        first, *others = value.type.shape or (self.old,)
        return Value(value.name, value.type.with_shape((self.rows(first), *others)))

    def rows(self, before: int) -> int:
        """So many rows per sample, for all samples."""
        return before // self.old * self.new

    def problem(self, where: str, reason: str) -> None:
        self.problems.append(Problem(where, reason))

    def node(self, node: Node) -> None:
        """Add the node that computes the same for the new batch."""
        if not any(value in self.values for value in node.operands):
            self.nodes.append(node)
            return
        try:
            self._change(node)
        except TypeRuleError as error:
            self.problem(describe(node), str(error))
            self.values |= {value: self.grown(value) for value in node.outputs}

    def _change(self, node: Node) -> None:
        operands = list(node.inputs)
        running = replace(node, epilogue=()).infer()[0] if node.outputs else None
        op = node.op
        if isinstance(op, Concatenate):
            operands = [self._repeated(value) if value is not None else None for value in operands]
        if running is not None:
            op = self._rule(op, tuple(node.inputs), running)
        steps: list[Step] = []
        for step in node.epilogue:
            assert running is not None
            op_types = (running, *(value.type for value in step.operands))
            batched = (True, *(value in self.values for value in step.operands))
            after = step.op.infer_all(op_types)[0]
            changed = _apply(step.op, _Case(op_types, batched, after, self.rows))
            steps.append(Step(changed, tuple(self.values.get(v, v) for v in step.operands)))
            running = after
        inputs = [self.values.get(v, v) if v is not None else None for v in operands]
        made = make_node(op, inputs, [value.name for value in node.outputs], steps)
        for old, new in zip(node.outputs, made.outputs, strict=True):
            shape = old.type.shape
            if not shape or shape[0] % self.old or new.type != self.grown(old).type:
                raise TypeRuleError(f"{op.name}: {old.type} becomes {new.type}, which holds no batch")
        self.values |= dict(zip(node.outputs, made.outputs, strict=True))
        self.nodes.append(made)

    def _rule(self, op: Op, inputs: tuple[Value | None, ...], result: TensorType) -> Op:
        types = tuple(value.type if value is not None else None for value in inputs)
        return _apply(op, _Case(types, tuple(v in self.values for v in inputs), result, self.rows))

    def _repeated(self, value: Value) -> Value:
        """A constant that stands beside values of a batch: once for each sample."""
        if value in self.values or value not in self.constants:
            return value
        array = self._each_sample(self.constants[value], f"constant {value.name!r}")
        repeated = Value(value.name, value.type.with_shape(array.shape))
        self.constants[repeated] = array
        return repeated

    def _each_sample(self, array: Array, where: str) -> Array:
        """The rows of one sample for all samples; before the change they must be alike."""
        samples = array.reshape((self.old, -1, *array.shape[1:]))
        if any(sample.tobytes() != samples[0].tobytes() for sample in samples):
            self.problem(where, f"its content differs between the {self.old} samples")
        return np.concatenate([samples[0]] * self.new)

    def _state(self, state: State) -> State:
        where = f"state {state.value.name!r}"
        after = self.values.get(state.next) or self._repeated(state.next)
        if after.type != self.values[state.value].type:
            self.problem(where, f"%{state.next.name}, its next content, does not depend on an input")
        return State(self.values[state.value], self._each_sample(state.initial, where), after)

    def _output(self, value: Value) -> Value:
        after = self.values.get(value) or self._repeated(value)
        if after.type != self.grown(value).type:
            self.problem(f"output {value.name!r}", "it does not depend on an input")
        return after

    def result(self) -> Graph:
        """The graph of the new batch."""
        state = tuple(self._state(s) for s in self.graph.state if s.value in self.values)
        graph = replace(
            self.graph,
            inputs=tuple(self.values[value] for value in self.graph.inputs),
            outputs=tuple(self._output(value) for value in self.graph.outputs),
            state=state,
        )
        return graph.with_nodes(self.nodes, constants=self.constants)


def _apply(op: Op, case: _Case) -> Op:
    """The operator for the new batch.

    Raises:
        TypeRuleError: it mixes samples, or there is no rule.
    """
    rule = next((_RULES[base] for base in type(op).__mro__ if base in _RULES), None)
    if rule is None and op.pattern in (Pattern.ELEMENTWISE, Pattern.BROADCAST):
        rule = _broadcast
    if rule is None:
        raise TypeRuleError(f"what {op.name} does to a batch is not known")
    answer = rule(op, case)
    if isinstance(answer, str):
        raise TypeRuleError(f"{op.name} {answer}")
    return answer


Rule = Callable[[Any, _Case], Op | str]


def _broadcast(op: Op, case: _Case) -> Op | str:
    for type, batched in zip(case.operands, case.batched, strict=True):
        if type is None:
            continue
        aligned = type.rank == case.result.rank
        if batched and not (aligned and type.shape[0] == case.result.shape[0]):
            return f"broadcasts the batch of {type} over {case.result}"
        if not batched and aligned and type.rank and type.shape[0] != 1:
            return f"takes different rows of {type} for different samples"
    return op


def _rows(op: Op, case: _Case) -> Op | str:
    """Each row of the first operand by itself, with the same other operands."""
    layout = layout_of(op)
    if layout is not None and not layout.startswith("N"):
        return f"has the layout {layout}, in which the batch is not first"
    if not case.batched[0] or any(case.batched[1:]):
        return "computes with weights that depend on an input"
    return op


def _last_axis(op: Op, case: _Case) -> Op | str:
    return op if case.x.rank > 1 else f"works along the only axis of {case.x}"


def _axis(op: ArgMax | ArgMin | Cumsum | Concatenate | Gather, case: _Case) -> Op | str:
    if op.axis == 0:
        return "works along the axis of the batch"
    if isinstance(op, Gather) and not (case.batched[0] and not case.batched[1]):
        return "looks up what depends on an input"
    return op


def _axes(op: Mean | Sum | ReduceMax | ReduceMin | ReduceProd, _: _Case) -> Op | str:
    return op if 0 not in op.axes else "works along the axis of the batch"


def _pad(op: Pad, _: _Case) -> Op | str:
    return op if op.padding[0] == (0, 0) else "pads the axis of the batch"


def _reshape(op: Reshape, case: _Case) -> Op | str:
    return replace(op, shape=(case.rows(op.shape[0]), *op.shape[1:])) if op.shape else "drops the batch"


def _broadcast_to(op: BroadcastTo, case: _Case) -> Op | str:
    if case.x.rank != len(op.shape) or case.x.shape[0] != op.shape[0]:
        return f"broadcasts the batch of {case.x} to {list(op.shape)}"
    return replace(op, shape=(case.rows(op.shape[0]), *op.shape[1:]))


def _transpose(op: Transpose, _: _Case) -> Op | str:
    return op if op.permutation[0] == 0 else "moves the axis of the batch"


def _strided_slice(op: StridedSlice, case: _Case) -> Op | str:
    if (op.begin[0], op.size[0], op.strides[0]) != (0, case.x.shape[0], 1):
        return "takes a part of the batch"
    return replace(op, size=(case.rows(op.size[0]), *op.size[1:]))


def _batch_matmul(op: BatchMatmul, case: _Case) -> Op | str:
    first, second = case.operands
    assert first is not None
    assert second is not None
    if case.batched == (True, False) and first.rank == 2:
        return op if not op.transpose_first and second.rank == 2 else "sums along the axis of the batch"
    for type, batched in zip(case.operands, case.batched, strict=True):
        assert type is not None
        if batched and type.rank == 2:
            return "mixes the rows of a matrix that depends on an input"
    return _broadcast(op, case)


def _svdf(op: Svdf, case: _Case) -> Op | str:
    return op if case.batched == (True, False, False, False, True) else "computes with weights of an input"


def _sequence(op: Lstm | Lstm8x8To16 | SequenceRnn, case: _Case) -> Op | str:
    if op.time_major:
        return "its batch is not the first axis"
    samples = (0, 4) if isinstance(op, SequenceRnn) else (0, 4, 5)
    if [i for i, batched in enumerate(case.batched) if batched] != list(samples):
        return "computes with weights of an input"
    return op


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
