"""What graphs keep to beside the type rules: how large they are, and which numbers their constants hold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from microfold.errors import GraphError
from microfold.ir.graph import Graph, verify
from microfold.ir.limits import MAX_BYTES
from microfold.ir.node import Node, Value, describe


def admit(graph: Graph) -> None:
    """Check a graph that someone hands in: that it is well-formed, and its constants have a meaning.

    Raises:
        GraphError: lists all that is wrong.
    """
    verify(graph)
    faults = [f"%{value.name}: {fault}" for value, fault in constant_faults(graph)]
    if faults:
        raise GraphError(
            f"graph {graph.name!r} cannot be compiled:\n" + "\n".join(f"  - {f}" for f in faults)
        )


def constant_faults(graph: Graph) -> Iterator[tuple[Value, str]]:
    """Constants outside of the domain, and why.

    They must not be too large together, nor hold NaN, nor an infinity that an operator computes with
    (`Op.takes_infinities`). What is computed from constants alone counts as one: it will be folded. What is
    computed while the model runs may be anything.
    """
    total = sum(array.nbytes for array in graph.constants.values())
    if total > MAX_BYTES:
        largest = max(graph.constants, key=lambda value: graph.constants[value].nbytes)
        yield largest, f"constants may have {MAX_BYTES} bytes together; this is the largest of {total}"
    infinite: set[Value] = set()
    for value, array in graph.constants.items():
        if array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        if np.isnan(array).any():
            yield value, f"a constant must not hold NaN; {int(np.isnan(array).sum())} of its elements are"
        else:
            infinite.add(value)
    for node in graph.nodes if infinite else ():
        for value in node.operands:
            if value in infinite and not _takes_infinities(node):
                yield value, f"{describe(node)} computes with it, so that it must be finite; it is infinite"
        if all(value in graph.constants or value in infinite for value in node.operands):
            infinite.update(node.outputs if not infinite.isdisjoint(node.operands) else ())
    for body in graph.subgraphs.values():
        yield from constant_faults(body)


def _takes_infinities(node: Node) -> bool:
    return node.op.takes_infinities and all(step.op.takes_infinities for step in node.epilogue)
