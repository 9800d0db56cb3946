"""Values that live from one call to the next: resource variables and tensors that operators update."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from microfold.ir.graph import State
from microfold.ir.node import Value
from microfold.ir.types import Array, TensorType

Key = tuple[str, str]  # container and shared name: the same variable in every subgraph


@dataclass(eq=False)
class Variable:
    """One variable while the model is imported.

    Attributes:
        initial: content before the first call; None: the zero point.
        value: content at the start of a call; None until the first read.
        current: content at this point of the call; None before the first read or assignment.
    """

    name: str
    initial: Array | None = None
    initial_type: TensorType | None = None
    value: Value | None = None
    current: Value | None = None

    def read(self, type: TensorType) -> Value:
        """Its content at this point; at the first read, that at the start of the call.

        Args:
            type: what the reader takes it for.
        """
        if self.current is None:
            self.value = self.current = Value(self.name, type)
        return self.current


def zeros(value_type: TensorType) -> Array:
    """What a variable holds before it is assigned: real zero."""
    zero_point = value_type.quant.zero_points[0] if value_type.quant is not None else 0
    return np.full(value_type.shape, zero_point, value_type.dtype.numpy)


@dataclass
class Variables:
    """All variables of a model, in order of appearance."""

    by_key: dict[Key, Variable] = field(default_factory=dict[Key, Variable])
    handles: dict[int, Variable] = field(default_factory=dict[int, Variable])
    in_place: dict[int, Variable] = field(default_factory=dict[int, Variable])

    def handle(self, tensor: int, key: Key) -> None:
        """Tensor `tensor` of the subgraph at hand stands for the variable."""
        self.handles[tensor] = self.by_key.setdefault(key, Variable(key[1] or f"variable_{len(self.by_key)}"))

    def unassigned(self) -> list[Variable]:
        """Variables that are read, but neither initialised nor assigned anywhere."""
        return [
            variable
            for variable in self.by_key.values()
            if variable.value is not None and variable.current is variable.value and variable.initial is None
        ]

    def states(self) -> tuple[State, ...]:
        """State of the graph: variables that are read before they are assigned."""
        states: list[State] = []
        for variable in (*self.by_key.values(), *self.in_place.values()):
            if variable.value is not None:
                assert variable.current is not None
                initial = variable.initial if variable.initial is not None else zeros(variable.value.type)
                states.append(State(variable.value, initial, variable.current))
        return tuple(states)

    def inner(self) -> InnerVariables:
        """The same variables as a subgraph sees them that runs here."""
        return InnerVariables(self)


@dataclass
class InnerVariables:
    """The variables of a subgraph that an operator runs: stand-ins for those of the model.

    What a stand-in's content is at the start becomes a parameter of the subgraph, and what it is at the end a
    result.
    """

    outside: Variables
    variables: Variables = field(default_factory=Variables)

    def __post_init__(self) -> None:
        for key, variable in self.outside.by_key.items():
            self.variables.by_key[key] = Variable(variable.name, initial_type=variable.initial_type)

    def stand_in(self, outer: Variable) -> Variable:
        """What stands for a variable inside."""
        (key,) = [key for key, variable in self.outside.by_key.items() if variable is outer]
        return self.variables.by_key[key]

    def outer_of(self, inner: Variable) -> Variable:
        """What a stand-in stands for."""
        (key,) = [key for key, variable in self.variables.by_key.items() if variable is inner]
        return self.outside.by_key.setdefault(key, Variable(inner.name))

    def touched(self) -> dict[Variable, Variable]:
        """The variables that the subgraph reads or assigns, with their stand-ins."""
        return {
            self.outer_of(inner): inner
            for inner in self.variables.by_key.values()
            if inner.current is not None
        }
