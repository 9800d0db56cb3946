"""Graph of the IR: immutable, typed and in A-normal form. Passes return new graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import numpy as np
from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from microfold.errors import GraphError, TypeRuleError
from microfold.ir.limits import MAX_NODES, MAX_OPERATIONS
from microfold.ir.node import Node, Value, resolve
from microfold.ir.op import Signature
from microfold.ir.types import Array, type_fault


class State(Struct, frozen=True, eq=False):
    """Value that persists from one call to the next.

    Attributes:
        value: read by nodes as the content at the start of a call.
        initial: content before the first call and after `reset`.
        next: content at the start of the following call; `value` itself if never assigned.
    """

    value: Value
    initial: Array
    next: Value


def _no_constants() -> Mapping[Value, Array]:
    return MappingProxyType({})


class Graph(Struct, frozen=True, eq=False):
    """Function from inputs to outputs.

    Attributes:
        nodes: nodes in topological order.
        constants: arrays of the values that no node produces; read-only.
        state: values that persist between calls.
        subgraphs: bodies by name, which operators of this graph and of no other graph refer to.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array] = field(default_factory=_no_constants)
    state: tuple[State, ...] = ()
    subgraphs: Mapping[str, Graph] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        force_setattr(self, "constants", MappingProxyType(dict(self.constants)))
        force_setattr(self, "subgraphs", MappingProxyType(dict(self.subgraphs)))
        for array in self.constants.values():
            array.setflags(write=False)

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.nodes)} nodes>"

    @property
    def signature(self) -> Signature:
        """Interface of the graph, as its callers see it."""
        return Signature(
            tuple(value.type for value in self.inputs),
            tuple(value.type for value in self.outputs),
            bool(self.state) or any(body.signature.stateful for body in self.subgraphs.values()),
        )

    def producers(self) -> dict[Value, Node]:
        """Return the node that produces each value."""
        return {value: node for node in self.nodes for value in node.outputs}

    def consumers(self) -> dict[Value, list[Node]]:
        """Return the nodes that read each value, without graph outputs and next states."""
        result: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in node.operands:
                result.setdefault(value, []).append(node)
        return result

    def use_counts(self) -> Counter[Value]:
        """Return the number of readers of each value: nodes, graph outputs and next states."""
        counts: Counter[Value] = Counter(v for node in self.nodes for v in node.operands)
        counts.update(self.outputs)
        counts.update(state.next for state in self.state)
        return counts

    def inputs_read(self, ends: Iterable[Value]) -> set[int]:
        """Return the indices of the inputs that these values depend on within one call."""
        live = set(ends)
        for node in reversed(self.nodes):
            if not live.isdisjoint(node.outputs):
                live.update(node.operands)
        return {index for index, value in enumerate(self.inputs) if value in live}

    def array(self, value: Value | None) -> Array | None:
        """Return the elements of a constant; None if the value is absent or not constant."""
        return self.constants.get(value) if value is not None else None

    def with_bodies(self, change: Callable[[str, Graph], Graph]) -> Graph:
        """Return the graph with changed subgraphs; itself if `change`, given name and body, changes none."""
        bodies = {name: change(name, body) for name, body in self.subgraphs.items()}
        if all(body is self.subgraphs[name] for name, body in bodies.items()):
            return self
        return replace(self, subgraphs=bodies)

    def with_nodes(
        self,
        nodes: Iterable[Node],
        *,
        constants: Mapping[Value, Array] | None = None,
        replaced: Mapping[Value, Value] | None = None,
    ) -> Graph:
        """Return this graph with other nodes; unused constants are dropped.

        Args:
            nodes: the new nodes, in topological order.
            constants: all constants to which the nodes can refer (default: the old ones).
            replaced: replacements of removed values that are graph outputs or next states.
        """
        replaced = replaced or {}
        nodes = tuple(nodes)
        outputs = tuple(resolve(v, replaced) for v in self.outputs)
        state = tuple(State(s.value, s.initial, resolve(s.next, replaced)) for s in self.state)
        live = {v for node in nodes for v in node.operands} | set(outputs) | {s.next for s in state}
        pool = self.constants if constants is None else constants
        kept = {value: array for value, array in pool.items() if value in live}
        return Graph(self.name, self.inputs, outputs, nodes, kept, state, self.subgraphs)


def verify(graph: Graph) -> None:
    """Check every invariant of the IR.

    Raises:
        GraphError: lists all violations.
    """
    faults: list[str] = []
    defined: set[Value] = set(graph.inputs) | set(graph.constants) | {s.value for s in graph.state}
    if len(graph.nodes) > MAX_NODES:
        faults.append(f"a graph can have at most {MAX_NODES} nodes; it has {len(graph.nodes)}")
    if len(set(graph.inputs)) != len(graph.inputs):
        faults.append("a value is an input twice")
    for value, array in graph.constants.items():
        _check_array(faults, f"constant {value!r}", value, array)
    for state in graph.state:
        _check_array(faults, f"state {state.value!r}", state.value, state.initial)
        if state.next.type != state.value.type:
            faults.append(f"state {state.value!r} is followed by {state.next!r} of another type")
    faults += _type_faults(graph)
    for index, node in enumerate(graph.nodes):
        where = f"node {index} ({node.op.name})"
        faults += [
            f"{where} reads {v!r}, which is not defined yet" for v in node.operands if v not in defined
        ]
        try:
            inferred = node.infer()
        except TypeRuleError as error:
            faults.append(f"{where}: {error}")
            inferred = None
        faults += [f"{where}: {fault}" for fault in _body_faults(graph, node)]
        if inferred is not None and (operations := node.operations()) > MAX_OPERATIONS:
            faults.append(f"{where} can have at most {MAX_OPERATIONS} operations; it has {operations}")
        if inferred is not None and inferred != tuple(v.type for v in node.outputs):
            faults.append(f"{where} yields {node.outputs}, its type rule says {inferred}")
        faults += [f"{where} defines {v!r} again" for v in node.outputs if v in defined]
        defined.update(node.outputs)
    ends = (*graph.outputs, *(state.next for state in graph.state))
    faults += [f"output {v!r} is not defined" for v in ends if v not in defined]
    if faults:
        raise GraphError(
            f"graph {graph.name!r} is not well-formed:\n" + "\n".join(f"  - {f}" for f in faults)
        )
    for subgraph in graph.subgraphs.values():
        verify(subgraph)


def _type_faults(graph: Graph) -> list[str]:
    """Return the faults of the types of values."""
    variable = [*graph.inputs, *(s.value for s in graph.state), *(v for n in graph.nodes for v in n.outputs)]
    faults = [f"{value!r} has no elements" for value in variable if value.type.size == 0]
    found = ((value, type_fault(value.type)) for value in (*variable, *graph.constants))
    return faults + [f"{value!r}: {fault}" for value, fault in found if fault]


def _body_faults(graph: Graph, node: Node) -> list[str]:
    """Return the faults of the subgraphs that a node runs."""
    missing = [name for name in node.op.bodies if name not in graph.subgraphs]
    if missing:
        return [f"there is no subgraph {', '.join(f'@{name}' for name in missing)}"]
    try:
        operands = [v.type if v is not None else None for v in node.inputs]
        node.op.check_bodies(operands, [graph.subgraphs[name].signature for name in node.op.bodies])
    except TypeRuleError as error:
        return [str(error)]
    return []


def _check_array(faults: list[str], what: str, value: Value, array: Array) -> None:
    if array.shape != value.type.shape or array.dtype != np.dtype(value.type.dtype.numpy):
        faults.append(f"{what} holds {array.dtype}{list(array.shape)}")
