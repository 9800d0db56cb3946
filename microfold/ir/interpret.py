"""The reference interpreter: evaluates a graph with each operator's `reference`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from microfold.errors import InputError
from microfold.ir.graph import Graph, Node, State, Value
from microfold.ir.types import Array, Tensor

Observer = Callable[[Node, tuple[Tensor, ...]], None]


def check_inputs(expected: Sequence[Value], given: Sequence[Array]) -> None:
    """Raise `InputError` unless there is one array per value, of its very type."""
    if len(given) != len(expected):
        raise InputError(f"the model takes {len(expected)} inputs; {len(given)} given")
    for index, (value, array) in enumerate(zip(expected, given, strict=True)):
        if array.shape != value.type.shape or array.dtype != value.type.dtype.numpy:
            raise InputError(
                f"input {index} ({value.name!r}) must be {value.type}; given {array.dtype}{list(array.shape)}"
            )


class Interpreter:
    """Runs a graph call after call, keeping its state.

    Args:
        graph: a well-formed graph.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self._state: dict[State, Array] = {}
        self.reset()

    def reset(self) -> None:
        """Put the state back to its initial values."""
        self._state = {state: state.initial for state in self.graph.state}

    def run(self, *inputs: Array, observe: Observer | None = None) -> tuple[Array, ...]:
        """One inference.

        Args:
            inputs: one array per graph input, of its shape and type.
            observe: called after each node with its results.

        Raises:
            InputError: wrong number, shape or type of inputs.
        """
        graph = self.graph
        check_inputs(graph.inputs, inputs)
        tensors = {value: Tensor(value.type, array) for value, array in graph.constants.items()}
        tensors |= {s.value: Tensor(s.value.type, array) for s, array in self._state.items()}
        tensors |= {v: Tensor(v.type, a) for v, a in zip(graph.inputs, inputs, strict=True)}
        for node in graph.nodes:
            results = node.evaluate(tensors)
            tensors.update(zip(node.outputs, results, strict=True))
            if observe is not None:
                observe(node, results)
        self._state = {state: tensors[state.next].data for state in graph.state}
        return tuple(tensors[value].data for value in graph.outputs)
