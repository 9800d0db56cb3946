"""Results and state of pattern matching; `microfold.ir.pattern` has the patterns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.types import Array


class Dataflow(Protocol):
    """Queries of a matcher about the values around a node."""

    def producer(self, value: Value) -> Node | None:
        """Return the node that computes a value; None for inputs, constants and states."""
        ...

    def array(self, value: Value) -> Array | None:
        """Return the elements of a constant; None for other values."""
        ...

    def readers(self, value: Value) -> int:
        """Return the number of readers of a value, including graph outputs and next states."""
        ...

    def consumers(self, value: Value) -> Sequence[Node]:
        """Return the nodes that read a value."""
        ...

    def is_input(self, value: Value) -> bool:
        """Return whether a value is an input of the graph."""
        ...


class GraphFlow:
    """Dataflow of a finished graph; create it once to match many values."""

    def __init__(self, graph: Graph):
        self._producers = graph.producers()
        self._constants = graph.constants
        self._uses = graph.use_counts()
        self._consumers = graph.consumers()
        self._inputs = frozenset(graph.inputs)

    def producer(self, value: Value) -> Node | None:
        return self._producers.get(value)

    def array(self, value: Value) -> Array | None:
        return self._constants.get(value)

    def readers(self, value: Value) -> int:
        return self._uses[value]

    def consumers(self, value: Value) -> Sequence[Node]:
        return self._consumers.get(value, ())

    def is_input(self, value: Value) -> bool:
        return value in self._inputs


class MatchSite(Struct, frozen=True):
    """Value at one place of a pattern, with its surroundings; the argument of predicates.

    Attributes:
        value: value that the pattern is matched against.
        node: node that computes it; None for inputs, constants and states.
        array: its elements if it is constant.
        readers: number of its readers, see `Dataflow.readers`.
        consumers: nodes that read it.
        is_input: whether it is an input of the graph.
    """

    value: Value
    node: Node | None
    array: Array | None
    readers: int
    consumers: Sequence[Node]
    is_input: bool


class Match(Struct, frozen=True, eq=False):
    """Successful match of a pattern.

    Attributes:
        values: value of each name of the pattern; names of absent optional parts are missing.
        nodes: nodes that the pattern's operators matched, operands first, the root last.
        flow: dataflow in which the pattern was matched.
    """

    values: Mapping[str, Value]
    nodes: tuple[Node, ...]
    flow: Dataflow

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def get(self, name: str) -> Value | None:
        """Return the value of a name; None if its part of the pattern is absent."""
        return self.values.get(name)

    def node(self, name: str) -> Node:
        """Return the node that computes a named value.

        Raises:
            KeyError: no node computes it.
        """
        node = self.flow.producer(self.values[name])
        if node is None:
            raise KeyError(f"no node computes {name!r}")
        return node

    def array(self, name: str) -> Array | None:
        """Return the elements of a named constant; None if it is absent or not constant."""
        value = self.values.get(name)
        return self.flow.array(value) if value is not None else None


class MatchFailure(Struct, frozen=True):
    """Reason why a pattern does not match: the mismatch of the alternative that got furthest.

    Attributes:
        where: position in the pattern and in the graph, e.g. ``operand weights of conv2d %y``.
        rule: requirement of the pattern, completing "must".
        found: what was found instead.
        matched: number of nodes that matched before; 0 if the root already has another operator.
    """

    where: str
    rule: str
    found: str
    matched: int

    def __str__(self) -> str:
        return f"{self.where} must {self.rule}; {self.found}"


class MatchState(Struct, frozen=True, eq=False):
    """Progress of a match.

    Attributes:
        values: value of each name bound so far.
        nodes: nodes whose operands have all been matched, in topological order.
        entered: number of nodes that have the right operator.
    """

    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    nodes: tuple[Node, ...] = ()
    entered: int = 0


class MatchSearch:
    """One run of the matcher, which remembers the mismatch that came after the most matched nodes."""

    def __init__(self, flow: Dataflow):
        self.flow = flow
        self.refusal: MatchFailure | None = None
        self._progress = (-1, False)

    def refuse(self, state: MatchState, where: str, rule: str, found: str, *, almost: bool = False) -> None:
        """Record why one alternative has failed.

        Args:
            almost: whether only an additional condition is violated. This counts as more progress.
        """
        progress = (state.entered, almost)
        if progress > self._progress:
            self.refusal = MatchFailure(where, rule, found, state.entered)
            self._progress = progress

    def at(self, value: Value) -> MatchSite:
        flow = self.flow
        return MatchSite(
            value,
            flow.producer(value),
            flow.array(value),
            flow.readers(value),
            flow.consumers(value),
            flow.is_input(value),
        )

    def origin(self, value: Value) -> str:
        """Return the origin of a value, in words."""
        node = self.flow.producer(value)
        if node is not None:
            return f"{node.op.name} computes {value!r}"
        return f"{value!r} is {'constant' if self.flow.array(value) is not None else 'an input or a state'}"


States = Iterator[MatchState]
