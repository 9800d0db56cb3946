"""Tree form of graphs: each output as the expression that computes it (TVM's graph normal form).

    graph @net(%x: int8[1,4,4,2] q(0.1, 3)) -> (%y)
      %y: int8[1,4,4,2] q(0.2, -5) = add
        %a: int8[1,4,4,2] q(0.2, -5) = conv2d {strides=(1, 1), ...} | clip {minimum=0.0, ...}
          %x
          %w = constant int8[2,1,1,2] q(axis=0, scales=[0.5, 0.25], zero_points=0) [1, -2, 3, 4]
          none
        %a (above)

A value with several readers is printed once, at its first use. This form cannot be parsed.
"""

from __future__ import annotations

from collections.abc import Iterator

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.text import Printer, attributes


def to_tree(graph: Graph, *, elide: bool = False) -> str:
    """Return a graph as trees: one for each output, each next state and each node with an effect.

    Args:
        elide: whether to leave out the data of large constants.
    """
    return "\n".join(_lines(graph, elide, "")) + "\n"


def _lines(graph: Graph, elide: bool, indent: str) -> Iterator[str]:
    printer = Printer(graph, elide)
    yield printer.header()
    inner = indent + "  "
    for state in graph.state:
        yield f"{inner}state {printer.names[state.value]} next {printer.names[state.next]}"
    roots = [node for node in graph.nodes if node.op.has_effect]
    ends = [*graph.outputs, *(state.next for state in graph.state)]
    yield from _expressions(graph, printer, [*roots, *ends], inner)
    for name, body in graph.subgraphs.items():
        first, *rest = _lines(body, elide, inner)
        yield f"{inner}subgraph @{name} = {first}"
        yield from rest


def _expressions(graph: Graph, printer: Printer, roots: list[Node | Value], indent: str) -> Iterator[str]:
    producers = graph.producers()
    seen: set[Node | Value] = set()
    # An explicit stack, because deep networks would exceed Python's recursion limit.
    pending: list[tuple[Node | Value | None, str]] = [(root, indent) for root in reversed(roots)]
    while pending:
        item, space = pending.pop()
        if item is None:
            yield f"{space}none"
            continue
        node = item if isinstance(item, Node) else producers.get(item)
        if node is None:
            assert isinstance(item, Value)
            new_constant = item in graph.constants and item not in seen
            yield space + (printer.constant(item) if new_constant else printer.names[item])
            seen.add(item)
        elif node not in seen:
            seen.add(node)
            types = [value.type for value in node.outputs]
            ops = [node.op, *(step.op for step in node.epilogue)]
            calls = " | ".join(f"{op.name}{attributes(op, types)}" for op in ops)
            yield f"{space}{printer.results(node)}{calls}"
            operands = [*node.inputs, *(v for step in node.epilogue for v in step.operands)]
            pending += [(operand, space + "  ") for operand in reversed(operands)]
        elif isinstance(item, Value):
            yield f"{space}{printer.names[item]} (above)"
