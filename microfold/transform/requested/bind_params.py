"""Turns inputs into constants.

    graph @g(%x: int8[4], %w: int8[4]) -> (%y) {          graph @g(%x: int8[4]) -> (%y) {
      %y: int8[4] = add(%x, %w)                     ->      %w = constant int8[4] [1, 2, 3, 4]
    }                                                       %y: int8[4] = add(%x, %w)
                                                          }

Everything that asks for a constant (weights above all) then finds one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.types import Array
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass
from microfold.support.frozen import frozen


@module_pass(opt_level=0)
@frozen
class BindParams:
    """Bind inputs of the main graph.

    Attributes:
        arrays: the constant for each input, by the input's name.

    Raises:
        InputError: the graph has no value of that name, several inputs have it, or the array does not fit.
    """

    arrays: Mapping[str, Array] = field(default_factory=dict[str, Array])

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        constants = dict(graph.constants)
        bound = {value.name for value in constants}
        for name, array in self.arrays.items():
            named = [value for value in graph.inputs if value.name == name]
            if not named and name in bound:
                context.declined(f"input %{name}", "it is bound already")
                continue
            if len(named) != 1:
                known = ", ".join(repr(value.name) for value in graph.inputs) or "none"
                count = "no input" if not named else f"{len(named)} inputs"
                raise InputError(f"{count} of the graph may be bound as {name!r}; its inputs are {known}")
            (value,) = named
            if array.shape != value.type.shape or array.dtype != value.type.dtype.numpy:
                raise InputError(
                    f"what is bound to {name!r} must be {value.type}; it is {array.dtype}{list(array.shape)}"
                )
            context.fired(f"input %{name}", f"it is bound to a constant of {array.nbytes} bytes")
            constants[value] = np.array(array)  # a copy: constants cannot be written
        inputs = tuple(value for value in graph.inputs if value not in constants)
        if len(inputs) == len(graph.inputs):
            return graph
        return replace(graph, inputs=inputs).with_nodes(graph.nodes, constants=constants)
