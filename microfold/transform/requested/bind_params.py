"""Binds inputs to constants.

    graph @g(%x: int8[4], %w: int8[4]) -> (%y) {          graph @g(%x: int8[4]) -> (%y) {
      %y: int8[4] = add(%x, %w)                     ->      %w = constant int8[4] [1, 2, 3, 4]
    }                                                       %y: int8[4] = add(%x, %w)
                                                          }

All passes that need constants, above all weights, then find one. A bound parameter of a subgraph has no
readers any more; `remove_unused_parameters` removes it with the callers' operands.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from microfold.errors import InputError
from microfold.ir.functions import transform_named
from microfold.ir.graph import Graph
from microfold.ir.node import Value, rewire
from microfold.ir.types import Array
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass


@module_pass(opt_level=0)
class BindParams(Struct, frozen=True):
    """Replacement of graph inputs by constants.

    Attributes:
        arrays: content of the constant for each input, by the input's name.
        func_name: name of the graph with these inputs (main graph or subgraph); empty: the main graph.

    Raises:
        InputError: no graph has this name, no input or several inputs have a name of `arrays`, or an array
            does not fit.
    """

    arrays: Mapping[str, Array] = field(default_factory=dict[str, Array])
    func_name: str = ""

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        if self.func_name in ("", graph.name):
            return self._bind(graph, context, True)
        return transform_named(graph, (self.func_name,), lambda body: self._bind(body, context, False))

    def _bind(self, graph: Graph, context: PassContext, is_main: bool) -> Graph:
        constants = dict(graph.constants)
        bound = {value.name for value in constants}
        replaced: dict[Value, Value] = {}
        for name, array in self.arrays.items():
            named = [value for value in graph.inputs if value.name == name]
            if name in bound and (not named or not is_main):
                context.declined(f"input %{name}", "it is already bound")
                continue
            if len(named) != 1:
                known = ", ".join(repr(value.name) for value in graph.inputs) or "none"
                count = "none" if not named else f"{len(named)}"
                raise InputError(f"{name!r} must be the name of one input; it names {count}; inputs: {known}")
            (value,) = named
            array = np.array(array)  # a copy: constants cannot be written
            if array.shape != value.type.shape or array.dtype != value.type.dtype.numpy:
                raise InputError(
                    f"the array bound to {name!r} must be {value.type}; got {array.dtype}{list(array.shape)}"
                )
            context.fired(f"input %{name}", f"it is bound to a constant of {array.nbytes} bytes")
            replaced[value] = value if is_main else Value(value.name, value.type)
            constants[replaced[value]] = array
        if not replaced:
            return graph
        inputs = tuple(value for value in graph.inputs if value not in constants)
        nodes = graph.nodes if is_main else [rewire(node, replaced) for node in graph.nodes]
        return replace(graph, inputs=inputs).with_nodes(
            nodes, constants=constants, replaced={} if is_main else replaced
        )
