"""Subgraphs that operators run, as they are imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from microfold.frontend.variables import Variable
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.support.frozen import frozen


@frozen
class Body:
    """An imported subgraph.

    Attributes:
        graph: takes and gives values only.
        outputs: of the subgraph in the file: values of the graph, and variables of the model.
        variables: those of the model that it reads or assigns, with what stands for them inside.
    """

    graph: Graph
    outputs: tuple[Value | Variable, ...]
    variables: Mapping[Variable, Variable]

    def assigns(self, variable: Variable) -> bool:
        """Whether the variable may hold something else after a run."""
        inner = self.variables.get(variable)
        return inner is not None and inner.current is not inner.value

    def content(self, variable: Variable) -> Value | None:
        """What the body takes or makes a variable for; None if it does not touch it."""
        inner = self.variables.get(variable)
        return inner.current if inner is not None else None

    def closed(self, variables: Sequence[Value], touched: Sequence[Variable], *, gives: bool) -> Graph:
        """The graph with variables as further inputs and, if it `gives` them back, outputs.

        Args:
            variables: the content of each before the run.
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
