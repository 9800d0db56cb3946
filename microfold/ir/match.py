"""What it means that a pattern of the dataflow fits, or does not; `microfold.ir.pattern` has the patterns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.types import Array
from microfold.support.frozen import frozen


class Dataflow(Protocol):
    """What a match asks about the values around it."""

    def producer(self, value: Value) -> Node | None:
        """The node that computes a value; None for inputs, constants and states."""
        ...

    def array(self, value: Value) -> Array | None:
        """The constant behind a value, if it is one."""
        ...

    def readers(self, value: Value) -> int:
        """How often a value is read, graph outputs and next states included."""
        ...

    def consumers(self, value: Value) -> Sequence[Node]:
        """The nodes that read a value."""
        ...

    def is_input(self, value: Value) -> bool:
        """Whether a value is an input of the graph."""
        ...


class GraphFlow:
    """The dataflow of a finished graph; make it once to match many values."""

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


@frozen
class At:
    """One place of a possible match, for predicates.

    Attributes:
        value: what the pattern is held against.
        node: computes it; None for inputs, constants and states.
        array: its elements if it is constant.
        readers: how often it is read,
        consumers: and by which nodes.
        is_input: it is an input of the graph.
    """

    value: Value
    node: Node | None
    array: Array | None
    readers: int
    consumers: Sequence[Node]
    is_input: bool


@frozen(eq=False)
class Match:
    """Where a pattern fits.

    Attributes:
        values: what each name of the pattern stands for; names of absent optional parts are missing.
        nodes: the nodes that the pattern's operators have matched, operands first, the root last.
        flow: where it was found.
    """

    values: Mapping[str, Value]
    nodes: tuple[Node, ...]
    flow: Dataflow

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def get(self, name: str) -> Value | None:
        """The value of a name; None if its part of the pattern is absent."""
        return self.values.get(name)

    def node(self, name: str) -> Node:
        """The node that computes a named value.

        Raises:
            KeyError: no node computes it.
        """
        node = self.flow.producer(self.values[name])
        if node is None:
            raise KeyError(f"no node computes {name!r}")
        return node

    def array(self, name: str) -> Array | None:
        """The elements of a named value that is constant; None if it is absent or not constant."""
        value = self.values.get(name)
        return self.flow.array(value) if value is not None else None


@frozen
class Refusal:
    """Why a pattern does not fit: of all its alternatives, the one that got furthest.

    Attributes:
        where: the place in the pattern and in the graph, e.g. ``operand weights of conv2d %y``.
        rule: what the pattern wants there; completes "must".
        found: what is there.
        matched: how many nodes had matched before; 0 says that the root is another operator.
    """

    where: str
    rule: str
    found: str
    matched: int

    def __str__(self) -> str:
        return f"{self.where} must {self.rule}; {self.found}"


@frozen(eq=False)
class State:
    """How far a match has come.

    Attributes:
        values: by name.
        nodes: whose operands have all been matched, in topological order.
        entered: how many nodes have been found to be the right operator.
    """

    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    nodes: tuple[Node, ...] = ()
    entered: int = 0


class Search:
    """One run of the matcher; remembers the refusal that came after the most matched nodes."""

    def __init__(self, flow: Dataflow):
        self.flow = flow
        self.refusal: Refusal | None = None
        self._progress = (-1, False)

    def refuse(self, state: State, where: str, rule: str, found: str, *, almost: bool = False) -> None:
        """Note why one way has failed.

        Args:
            almost: the value fits but for a condition on top: better news than one that does not fit at all.
        """
        progress = (state.entered, almost)
        if progress > self._progress:
            self.refusal = Refusal(where, rule, found, state.entered)
            self._progress = progress

    def at(self, value: Value) -> At:
        flow = self.flow
        return At(
            value,
            flow.producer(value),
            flow.array(value),
            flow.readers(value),
            flow.consumers(value),
            flow.is_input(value),
        )

    def origin(self, value: Value) -> str:
        """Where a value comes from, in words."""
        node = self.flow.producer(value)
        if node is not None:
            return f"{node.op.name} computes {value!r}"
        return f"{value!r} is {'constant' if self.flow.array(value) is not None else 'an input or a state'}"


States = Iterator[State]
