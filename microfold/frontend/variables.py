"""Values that are kept between runs: resource variables, and tensors that operators update in place."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from microfold.ir.graph import State
from microfold.ir.node import Value
from microfold.ir.types import Array, TensorType

Key = tuple[str, str]  # container and shared name: the same variable in every subgraph


@dataclass(eq=False)
class Variable:
    """Variable during the import.

    Attributes:
        initial: elements before the first run; None: the zero point.
        value: value at the start of a run; None until the first read.
        current: value at the current point of the run; None before the first read or assignment.
    """

    name: str
    initial: Array | None = None
    initial_type: TensorType | None = None
    value: Value | None = None
    current: Value | None = None

    def read(self, type: TensorType) -> Value:
        """Return the current value. The first read creates the value at the start of the run.

        Args:
            type: type that the reader expects.
        """
        if self.current is None:
            self.value = self.current = Value(self.name, type)
        return self.current


def zeros(value_type: TensorType) -> Array:
    """Return the elements of a variable before its first assignment: real zero."""
    zero_point = value_type.quant.zero_points[0] if value_type.quant is not None else 0
    return np.full(value_type.shape, zero_point, value_type.dtype.numpy)


@dataclass
class Variables:
    """All variables of a model, in order of appearance."""

    by_key: dict[Key, Variable] = field(default_factory=dict[Key, Variable])
    handles: dict[int, Variable] = field(default_factory=dict[int, Variable])
    in_place: dict[int, Variable] = field(default_factory=dict[int, Variable])

    def handle(self, tensor: int, key: Key) -> None:
        """Register tensor `tensor` of the current subgraph as a handle of the variable."""
        self.handles[tensor] = self.by_key.setdefault(key, Variable(key[1] or f"variable_{len(self.by_key)}"))

    def unassigned(self) -> list[Variable]:
        """Return the variables that are read, but neither initialised nor assigned."""
        return [
            variable
            for variable in self.by_key.values()
            if variable.value is not None and variable.current is variable.value and variable.initial is None
        ]

    def states(self) -> tuple[State, ...]:
        """Return the state of the graph: the variables that are read before they are assigned."""
        states: list[State] = []
        for variable in (*self.by_key.values(), *self.in_place.values()):
            if variable.value is not None:
                assert variable.current is not None
                initial = variable.initial if variable.initial is not None else zeros(variable.value.type)
                states.append(State(variable.value, initial, variable.current))
        return tuple(states)

    def inner(self) -> InnerVariables:
        """Return the variables for a subgraph that an operator runs at this point."""
        return InnerVariables(self)


@dataclass
class InnerVariables:
    """Variables of a subgraph that an operator runs: each is a stand-in for a variable of the model.

    The value of a stand-in at the start becomes a parameter of the subgraph, and the value at the end a
    result.
    """

    outside: Variables
    variables: Variables = field(default_factory=Variables)

    def __post_init__(self) -> None:
        for key, variable in self.outside.by_key.items():
            self.variables.by_key[key] = Variable(variable.name, initial_type=variable.initial_type)

    def stand_in(self, outer: Variable) -> Variable:
        """Return the stand-in of a variable."""
        (key,) = [key for key, variable in self.outside.by_key.items() if variable is outer]
        return self.variables.by_key[key]

    def outer_of(self, inner: Variable) -> Variable:
        """Return the variable of a stand-in."""
        (key,) = [key for key, variable in self.variables.by_key.items() if variable is inner]
        return self.outside.by_key.setdefault(key, Variable(inner.name))

    def touched(self) -> dict[Variable, Variable]:
        """Return the variables that the subgraph reads or assigns, with their stand-ins."""
        return {
            self.outer_of(inner): inner
            for inner in self.variables.by_key.values()
            if inner.current is not None
        }
