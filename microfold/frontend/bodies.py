"""Imported subgraphs of control-flow operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from microfold.frontend.variables import Variable
from microfold.ir.graph import Graph
from microfold.ir.node import Value


class Body(Struct, frozen=True):
    """Imported subgraph.

    Attributes:
        graph: graph without the variables; its inputs and outputs are values.
        outputs: outputs of the subgraph in the file: values of the graph, and variables of the model.
        variables: variables of the model that the subgraph reads or assigns, each with its counterpart
            in the subgraph.
    """

    graph: Graph
    outputs: tuple[Value | Variable, ...]
    variables: Mapping[Variable, Variable]

    def assigns(self, variable: Variable) -> bool:
        """Return whether a run may change the variable."""
        inner = self.variables.get(variable)
        return inner is not None and inner.current is not inner.value

    def content(self, variable: Variable) -> Value | None:
        """Return the value of a variable after a run; None if the body does not use the variable."""
        inner = self.variables.get(variable)
        return inner.current if inner is not None else None

    def closed(self, variables: Sequence[Value], touched: Sequence[Variable], *, gives: bool) -> Graph:
        """Return the graph with variables as additional inputs and, if it `gives` them back, outputs.

        Args:
            variables: the value of each variable before the run.
            touched: the variables, in the same order.
        """
        inputs: list[Value] = []
        outputs: list[Value] = []
        for value, variable in zip(variables, touched, strict=True):
            inner = self.variables.get(variable)
            parameter = inner.value if inner is not None else None
            inputs.append(parameter if parameter is not None else Value(variable.name, value.type))
            after = inner.current if inner is not None else None
            outputs.append(after if after is not None else inputs[-1])
        graph = replace(self.graph, inputs=(*self.graph.inputs, *inputs))
        graph = replace(graph, outputs=(*graph.outputs, *outputs)) if gives else graph
        return graph.with_nodes(graph.nodes)
