"""Reference interpreter: evaluates a graph with each operator's `reference`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from microfold.errors import InputError, NoReferenceError
from microfold.ir.graph import Graph, State
from microfold.ir.node import Node, Value
from microfold.ir.op import Function
from microfold.ir.types import Array, Tensor

Observer = Callable[[Node, tuple[Tensor, ...]], None]
Missing = Callable[[Node], Sequence[Array]]


def check_inputs(expected: Sequence[Value], given: Sequence[Array]) -> None:
    """Raise `InputError` unless each value has one array with exactly its type."""
    if len(given) != len(expected):
        raise InputError(f"the model has {len(expected)} inputs; got {len(given)}")
    for index, (value, array) in enumerate(zip(expected, given, strict=True)):
        if array.shape != value.type.shape or array.dtype != value.type.dtype.numpy:
            raise InputError(
                f"input {index} ({value.name!r}) must be {value.type}; got {array.dtype}{list(array.shape)}"
            )


class Interpreter:
    """Interpreter of one graph, which keeps the state from call to call.

    Args:
        graph: a well-formed graph.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self._state: dict[State, Array] = {}
        self._cut_short = 0
        self._watch: Observer | None = None
        self._bodies = {name: Interpreter(body) for name, body in graph.subgraphs.items()}
        self._functions = {name: _function(body) for name, body in self._bodies.items()}
        self.reset()

    def watch_bodies(self, observe: Observer) -> None:
        """Call `observe` also after each node of the subgraphs, whenever they run."""
        for body in self._bodies.values():
            body._watch = observe
            body.watch_bodies(observe)

    @property
    def cut_short(self) -> int:
        """Number of loops that have stopped at their limit so far, including loops in subgraphs."""
        return self._cut_short + sum(body.cut_short for body in self._bodies.values())

    def reset(self) -> None:
        """Reset the state of the graph and of its subgraphs to the initial values."""
        for body in self._bodies.values():
            body.reset()
        self._state = {state: state.initial for state in self.graph.state}

    def run(
        self,
        *inputs: Array,
        observe: Observer | None = None,
        missing: Missing | None = None,
        given: Missing | None = None,
    ) -> tuple[Array, ...]:
        """Run one inference.

        Args:
            inputs: one array per graph input, with its shape and type.
            observe: called after each node with its results.
            missing: returns the results of nodes that have no reference.
            given: returns results that later nodes read instead of the computed ones, or an empty sequence to
                keep the computed ones.

        Raises:
            InputError: the number, shape or type of the inputs is wrong.
            NoReferenceError: a node has no reference, and `missing` is None.
        """
        graph, observe = self.graph, observe or self._watch
        check_inputs(graph.inputs, inputs)
        tensors = {value: Tensor(value.type, array) for value, array in graph.constants.items()}
        tensors |= {s.value: Tensor(s.value.type, array) for s, array in self._state.items()}
        tensors |= {v: Tensor(v.type, a) for v, a in zip(graph.inputs, inputs, strict=True)}
        for node in graph.nodes:
            results = self._evaluate(node, tensors, missing)
            if node.op.bodies:
                operands = [tensors[v] if v is not None else None for v in node.inputs]
                self._cut_short += node.op.is_cut_short(operands, results, self._functions)
            if observe is not None:
                observe(node, results)
            others = given(node) if given is not None else ()
            if others:
                results = tuple(Tensor(v.type, a) for v, a in zip(node.outputs, others, strict=True))
            tensors.update(zip(node.outputs, results, strict=True))
        self._state = {state: tensors[state.next].data for state in graph.state}
        return tuple(tensors[value].data for value in graph.outputs)

    def _evaluate(
        self, node: Node, tensors: Mapping[Value, Tensor], missing: Missing | None
    ) -> tuple[Tensor, ...]:
        try:
            return node.evaluate(tensors, self._functions)
        except NoReferenceError:
            if missing is None:
                raise
            return tuple(Tensor(v.type, a) for v, a in zip(node.outputs, missing(node), strict=True))


def functions(graph: Graph) -> Mapping[str, Function]:
    """Return the function of each subgraph by name. Its state starts with the initial values."""
    return {name: _function(Interpreter(body)) for name, body in graph.subgraphs.items()}


def _function(body: Interpreter) -> Function:
    def call(operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
        results = body.run(*(operand.data for operand in operands))
        outputs = zip(body.graph.outputs, results, strict=True)
        return tuple(Tensor(value.type, array) for value, array in outputs)

    return call
