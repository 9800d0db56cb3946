"""Dataflow pattern matcher, after TVM's (https://tvm.apache.org/docs/reference/langref/relay_pattern.html).

A pattern describes a value and the subgraph that computes it, from the root up to the values that the
subgraph reads::

    x = wildcard("x")
    conv = is_op(Conv2D, strides=(1, 1))(x, constant("filter"), optional(constant("bias"))).used_by_one()
    pattern = is_op(Clip)(conv | is_op(Add).in_any_order(conv, constant("offset"))).named("clip")

    found = match(pattern, graph.outputs[0], graph)
    if isinstance(found, Match):
        found["x"], found.node("clip"), found.array("filter")
    else:
        print(found)  # operand x of clip %y must have one reader; %a: int8[1,8,8,4] has 2

If a name occurs twice in a pattern, both occurrences must match the same value:
``is_op(Mul)(x, is_op(Logistic)(x))`` matches x * sigmoid(x). `microfold.ir.rewrite_patterns` rewrites
matches.

Matching is a depth-first search with backtracking. `DataflowPattern.find` yields every way in which a pattern
matches a value, as an immutable `MatchState` extended by the bound names and nodes. A mismatch is reported to
the `MatchSearch`, which keeps the one that occurred after the most matched nodes, as the error message.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.errors import InputError
from microfold.ir.dominated import Path
from microfold.ir.graph import Graph
from microfold.ir.match import (
    Dataflow,
    GraphFlow,
    Match,
    MatchFailure,
    MatchSearch,
    MatchSite,
    MatchState,
    States,
)
from microfold.ir.node import Node, Value, describe
from microfold.ir.op import REGISTRY, Op
from microfold.ir.types import Array, DType, TensorType

__all__ = [
    "DataflowPattern",
    "GraphFlow",
    "Match",
    "MatchFailure",
    "OpPattern",
    "constant",
    "is_constant",
    "is_input",
    "is_op",
    "match",
    "one_of",
    "optional",
    "sequence",
    "wildcard",
]


class DataflowPattern(Struct, frozen=True, eq=False):
    """Base class of all patterns of a value and of the nodes that compute it.

    Patterns are immutable. Methods such as `named` or `has_dtype` return a new, more specific pattern.
    """

    def named(self, name: str) -> DataflowPattern:
        """Bind the matched value to a name, under which the match returns it."""
        return _Named(self, name)

    def where(self, predicate: Callable[[MatchSite], bool], rule: str) -> DataflowPattern:
        """Require a predicate.

        Args:
            predicate: receives the value, its node, its elements and its readers.
            rule: the requirement in words, completing "must", e.g. ``have one element``.
        """
        return _Checked(self, lambda at: None if predicate(at) else (rule, f"it is {at.value!r}"))

    def has_type(self, type: TensorType) -> DataflowPattern:
        """Require exactly this type, including its quantisation."""
        rule = f"be {type}" + (f" with {type.quant}" if type.quant is not None else ", not quantised")

        def check(at: MatchSite) -> tuple[str, str] | None:
            given = at.value.type
            return None if given == type else (rule, f"it is {at.value!r} with {given.quant}")

        return _Checked(self, check)

    def has_dtype(self, *dtypes: DType) -> DataflowPattern:
        """Require one of these element types."""
        rule = f"be {' or '.join(dtype.value for dtype in dtypes)}"
        return self.where(lambda at: at.value.type.dtype in dtypes, rule)

    def has_shape(self, *extents: int | None) -> DataflowPattern:
        """Require this shape. None stands for any extent."""
        shown = ",".join("?" if extent is None else str(extent) for extent in extents)

        def fits(at: MatchSite) -> bool:
            shape = at.value.type.shape
            return len(shape) == len(extents) and all(
                wanted in (None, extent) for wanted, extent in zip(extents, shape, strict=True)
            )

        return self.where(fits, f"have the shape [{shown}]")

    def used_by_one(self) -> DataflowPattern:
        """Require that the value has one reader, which is then the rest of the pattern."""

        def check(at: MatchSite) -> tuple[str, str] | None:
            return None if at.readers == 1 else ("have one reader", f"{at.value!r} has {at.readers}")

        return _Checked(self, check)

    def only_used_by(self, *ops: type[Op] | str) -> DataflowPattern:
        """Require at least one reader, and only readers with these operators.

        Raises:
            InputError: one of the operators does not exist.
        """
        types = tuple(_op_type(op) for op in ops)
        rule = f"be read by {' or '.join(op_type.name for op_type in types)} only"

        def check(at: MatchSite) -> tuple[str, str] | None:
            others = [describe(node) for node in at.consumers if not isinstance(node.op, types)]
            if at.readers > sum(node.operands.count(at.value) for node in at.consumers):
                others.append("a graph output or next state")
            if others or not at.consumers:
                return rule, f"{', '.join(others) or 'nothing'} reads {at.value!r}"
            return None

        return _Checked(self, check)

    def dominates(self, parent: DataflowPattern, path: DataflowPattern | None = None) -> DataflowPattern:
        """Require that all operands are computed from one common value, the parent.

        Every path from the node up, except to constants, must lead through nodes that match `path` to the
        same value
        that matches `parent`. No other node may read the parent or the nodes between. If `path` is None, the
        node
        reads the parent itself.
        """
        return _Dominated(self, Path(parent.find, path.find if path is not None else None))

    def __or__(self, other: DataflowPattern) -> DataflowPattern:
        return one_of(self, other)

    def reading(self, source: DataflowPattern) -> DataflowPattern:
        """Require that some operand of the node matches `source`; used by `sequence`.

        Raises:
            InputError: the pattern does not match nodes.
        """
        raise InputError("only patterns of operators read something; a wildcard or a constant does not")

    def find(self, value: Value, where: str, state: MatchState, search: MatchSearch) -> States:
        """Yield every way in which the pattern matches a value, and report mismatches to the search.

        Args:
            where: position of the value in words, for messages.
            state: bindings and nodes matched so far, which the yielded states extend.
        """
        raise NotImplementedError

    def find_absent(self, where: str, state: MatchState, search: MatchSearch) -> States:
        """Do the same as `find` for an optional operand that is absent."""
        search.refuse(state, where, "be present", "it is absent")
        return iter(())


class _Wildcard(DataflowPattern, frozen=True):
    def find(self, value: Value, where: str, state: MatchState, search: MatchSearch) -> States:
        yield state


class _Constant(DataflowPattern, frozen=True):
    def find(self, value: Value, where: str, state: MatchState, search: MatchSearch) -> States:
        if search.flow.array(value) is not None:
            yield state
        else:
            search.refuse(state, where, "be constant", search.origin(value))


class _Named(DataflowPattern, frozen=True):
    inner: DataflowPattern
    name: str

    def reading(self, source: DataflowPattern) -> DataflowPattern:
        return replace(self, inner=self.inner.reading(source))

    def find(self, value: Value, where: str, state: MatchState, search: MatchSearch) -> States:
        known = state.values.get(self.name, value)
        if known is not value:
            rule = f"be the value bound to {self.name!r} elsewhere"
            search.refuse(state, where, rule, f"{value!r} is not {known!r}")
            return
        for found in self.inner.find(value, where, state, search):
            yield replace(found, values={**found.values, self.name: value})


class _Checked(DataflowPattern, frozen=True):
    """Condition on top of a pattern: it returns None, or the rule and what was found instead."""

    inner: DataflowPattern
    check: Callable[[MatchSite], tuple[str, str] | None]

    def reading(self, source: DataflowPattern) -> DataflowPattern:
        return replace(self, inner=self.inner.reading(source))

    def find(self, value: Value, where: str, state: MatchState, search: MatchSearch) -> States:
        for found in self.inner.find(value, where, state, search):
            problem = self.check(search.at(value))
            if problem is None:
                yield found
            else:
                search.refuse(found, where, *problem, almost=True)


class _Dominated(DataflowPattern, frozen=True):
    inner: DataflowPattern
    path: Path

    def find(self, value: Value, where: str, state: MatchState, search: MatchSearch) -> States:
        for found in self.inner.find(value, where, state, search):
            node = search.flow.producer(value)
            if node is None:
                search.refuse(found, where, "be computed by a node", search.origin(value))
                continue
            grown = self.path.grown(node, where, found, search)
            if grown is not None:
                yield grown


class _OneOf(DataflowPattern, frozen=True):
    alternatives: tuple[DataflowPattern, ...]

    def reading(self, source: DataflowPattern) -> DataflowPattern:
        return _OneOf(tuple(alternative.reading(source) for alternative in self.alternatives))

    def find(self, value: Value, where: str, state: MatchState, search: MatchSearch) -> States:
        for alternative in self.alternatives:
            yield from alternative.find(value, where, state, search)


class _Optional(DataflowPattern, frozen=True):
    inner: DataflowPattern

    def reading(self, source: DataflowPattern) -> DataflowPattern:
        return one_of(self.inner.reading(source), source)

    def find(self, value: Value, where: str, state: MatchState, search: MatchSearch) -> States:
        return self.inner.find(value, where, state, search)

    def find_absent(self, where: str, state: MatchState, search: MatchSearch) -> States:
        yield state


class OpPattern(DataflowPattern, frozen=True):
    """Pattern of the result of a node with a certain operator and no epilogue; created by `is_op`.

    Call the pattern with one pattern for each operand, in order, or use `in_any_order`. Without either, it
    matches any operands.
    """

    op_types: tuple[type[Op], ...]
    attributes: Mapping[str, Any]
    orders: tuple[tuple[DataflowPattern, ...], ...] = ()
    source: DataflowPattern | None = None

    def __call__(self, *operands: DataflowPattern) -> OpPattern:
        """Require one operand for each of these patterns, in order."""
        return replace(self, orders=(operands,), source=None)

    def in_any_order(self, *operands: DataflowPattern) -> OpPattern:
        """Require one operand for each of these patterns, in any order; for commutative operators."""
        return replace(self, orders=tuple(permutations(operands)), source=None)

    def reading(self, source: DataflowPattern) -> OpPattern:
        return replace(self, orders=(), source=source)

    def find(self, value: Value, where: str, state: MatchState, search: MatchSearch) -> States:
        node = search.flow.producer(value)
        if node is None or not isinstance(node.op, self.op_types):
            names = " or ".join(getattr(op_type, "name", "a node") for op_type in self.op_types)
            search.refuse(state, where, f"be computed by {names}", search.origin(value))
            return
        state = replace(state, entered=state.entered + 1)
        problem = self._problem(node)
        if problem is not None:
            search.refuse(state, describe(node), *problem)
            return
        for found in self._operands(node, state, search):
            # A node that is reached along two paths is part of the match once.
            yield found if node in found.nodes else replace(found, nodes=(*found.nodes, node))

    def _problem(self, node: Node) -> tuple[str, str] | None:
        """Return the violated rule and what was found; None if the node itself matches."""
        if node.epilogue:
            return "have no epilogue", f"it has {', '.join(step.op.name for step in node.epilogue)}"
        for name, wanted in self.attributes.items():
            given = getattr(node.op, name)
            if callable(wanted) and not wanted(given):
                return f"have a fitting {name}", f"it is {given}"
            if not callable(wanted) and given != wanted:
                return f"have {name} {wanted}", f"it is {given}"
        return None

    def _operands(self, node: Node, state: MatchState, search: MatchSearch) -> States:
        if self.source is not None:
            for index, value in enumerate(node.inputs):
                if value is not None:
                    yield from self.source.find(value, _place(node, index), state, search)
        elif self.orders:
            for patterns in self.orders:
                yield from _find_all(patterns, node, state, search)
        else:
            yield state


def _find_all(
    patterns: tuple[DataflowPattern, ...], node: Node, state: MatchState, search: MatchSearch, index: int = 0
) -> States:
    """Yield every way in which all operands from `index` on match their patterns."""
    if index == len(patterns):
        if index >= len(node.inputs):
            yield state
        else:
            found = f"it has {len(node.inputs)}"
            search.refuse(state, describe(node), f"have at most {index} operands", found)
        return
    value = node.inputs[index] if index < len(node.inputs) else None
    where, pattern = _place(node, index), patterns[index]
    if value is None:
        states = pattern.find_absent(where, state, search)
    else:
        states = pattern.find(value, where, state, search)
    for found in states:
        yield from _find_all(patterns, node, found, search, index + 1)


def _place(node: Node, index: int) -> str:
    names = _operand_names(type(node.op))
    # Variadic operators: all further operands have the last name and an index.
    name = names[index] if index < len(names) else f"{names[-1] if names else ''}[{index}]"
    return f"operand {name} of {describe(node)}"


@cache
def _operand_names(op_type: type[Op]) -> tuple[str, ...]:
    return tuple(inspect.signature(op_type.infer).parameters)[1:]


def wildcard(name: str = "") -> DataflowPattern:
    """Match any value. An absent operand is not a value."""
    return _Wildcard().named(name) if name else _Wildcard()


def constant(name: str = "") -> DataflowPattern:
    """Match any constant."""
    return _Constant().named(name) if name else _Constant()


def is_constant(value: float | Array, name: str = "") -> DataflowPattern:
    """Match a constant that has these elements after they are broadcast to its shape."""
    wanted = np.asarray(value)

    def check(at: MatchSite) -> bool:
        if at.array is None:
            return False
        try:
            return bool(np.array_equal(np.broadcast_to(wanted, at.array.shape), at.array))
        except ValueError:
            return False

    shown = f"{wanted}" if wanted.size == 1 else f"an array of shape {list(wanted.shape)}"
    return constant(name).where(check, f"have the elements of {shown}")


def is_input(name: str = "") -> DataflowPattern:
    """Match an input of the graph."""
    return wildcard(name).where(lambda at: at.is_input, "be an input of the graph")


def optional(pattern: DataflowPattern) -> DataflowPattern:
    """Make a pattern optional: as an operand, it may be absent; as a step of a `sequence`, left out."""
    return _Optional(pattern)


def one_of(*alternatives: DataflowPattern) -> DataflowPattern:
    """Match the first alternative that fits; also written ``a | b``."""
    return _OneOf(alternatives)


def is_op(*ops: type[Op] | str, **attributes: Any) -> OpPattern:
    """Match the result of a node with one of these operators.

    Args:
        ops: operators, or their names in the text form. A base class matches all its subclasses.
        attributes: required value of an attribute, or a predicate on it.

    Raises:
        InputError: an operator or attribute does not exist.
    """
    types = tuple(_op_type(op) for op in ops)
    for op_type in types:
        known = op_type.__struct_fields__
        unknown = sorted(attributes.keys() - set(known))
        if unknown:
            there = ", ".join(known) or "none"
            raise InputError(f"{op_type.__name__} has no attribute {', '.join(unknown)}; it has {there}")
    return OpPattern(types, attributes)


def _op_type(op: type[Op] | str) -> type[Op]:
    if not isinstance(op, str):
        return op
    if op not in REGISTRY:
        raise InputError(f"unknown operator {op!r}; known are {', '.join(sorted(REGISTRY))}")
    return REGISTRY[op]


def sequence(*steps: DataflowPattern) -> DataflowPattern:
    """Match a chain of operators. Each reads the result of the one before, and any other operands.

    Raises:
        InputError: a step after the first one does not match nodes.
    """
    first, *rest = steps
    for step in rest:
        first = step.reading(first)
    return first


def match(pattern: DataflowPattern, value: Value, graph: Graph | Dataflow) -> Match | MatchFailure:
    """Match a pattern against a value.

    Args:
        graph: graph of the value, or its `GraphFlow`, which saves work if many values are matched.

    Returns:
        The first match, or the reason why there is none.
    """
    flow = GraphFlow(graph) if isinstance(graph, Graph) else graph
    search = MatchSearch(flow)
    for found in pattern.find(value, f"%{value.name}", MatchState(), search):
        return Match(found.values, found.nodes, flow)
    assert search.refusal is not None  # a pattern that yields no state has reported a mismatch
    return search.refusal
