"""Rules for graphs beyond the type rules: size and finite values of constants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from microfold.errors import GraphError
from microfold.ir.graph import Graph, verify
from microfold.ir.limits import MAX_BYTES
from microfold.ir.node import Node, Value, describe


def admit(graph: Graph) -> None:
    """Check that a graph from outside is well-formed and that its constants are valid.

    Raises:
        GraphError: lists all faults.
    """
    verify(graph)
    faults = [f"%{value.name}: {fault}" for value, fault in constant_faults(graph)]
    if faults:
        raise GraphError(
            f"graph {graph.name!r} cannot be compiled:\n" + "\n".join(f"  - {f}" for f in faults)
        )


def constant_faults(graph: Graph) -> Iterator[tuple[Value, str]]:
    """Yield the invalid constants, each with the reason.

    Constants must not be too large together, contain NaN, or contain an infinity that an operator computes
    with
    (`Op.takes_infinities`). A value that is computed from constants alone counts as a constant, because it
    will be folded. Values that are computed at run time are not restricted.
    """
    total = sum(array.nbytes for array in graph.constants.values())
    if total > MAX_BYTES:
        largest = max(graph.constants, key=lambda value: graph.constants[value].nbytes)
        yield largest, f"all constants can have at most {MAX_BYTES} bytes; this is the largest of {total}"
    infinite: set[Value] = set()
    for value, array in graph.constants.items():
        if array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        if np.isnan(array).any():
            yield (
                value,
                f"a constant must not contain NaN; {int(np.isnan(array).sum())} of its elements are NaN",
            )
        else:
            infinite.add(value)
    for node in graph.nodes if infinite else ():
        for value in node.operands:
            if value in infinite and not _takes_infinities(node):
                yield value, f"{describe(node)} computes with it, so it must be finite; it is infinite"
        if all(value in graph.constants or value in infinite for value in node.operands):
            infinite.update(node.outputs if not infinite.isdisjoint(node.operands) else ())
    for body in graph.subgraphs.values():
        yield from constant_faults(body)


def _takes_infinities(node: Node) -> bool:
    return node.op.takes_infinities and all(step.op.takes_infinities for step in node.epilogue)
