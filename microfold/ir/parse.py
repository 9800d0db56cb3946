"""Parser of the text form; `microfold.ir.text` describes the grammar.

Operators are looked up by name in the registry: import `microfold.ops` first.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from microfold.errors import TypeRuleError
from microfold.ir.attributes import attribute_types, from_results, required_attributes
from microfold.ir.graph import Graph, State
from microfold.ir.limits import MAX_DEPTH
from microfold.ir.literals import LiteralCursor
from microfold.ir.node import EpilogueStep, Node, Value
from microfold.ir.op import REGISTRY, Op
from microfold.ir.tokens import Token
from microfold.ir.types import Array, DType, TensorType

# Errors that a type rule can raise. All but the first occur for attributes so wrong that the rule itself
# fails.
ABSURD = (TypeRuleError, ValueError, TypeError, LookupError, ArithmeticError)


def parse(text: str, *, constants: Mapping[str, Array] | None = None, source: str = "<text>") -> Graph:
    """Return the graph that a text describes. Nodes are checked against their type rules.

    Args:
        text: text form of one graph.
        constants: data by digest, for elided text (`microfold.ir.text.digests`).
        source: name of the text in error messages.

    Raises:
        TextFormError: the text is invalid; states the position, what was expected and what was found.
    """
    parser = _Parser(text, constants or {}, source)
    graph = parser.graph()
    parser.expect_end()
    return graph


def read_element(text: str, dtype: DType) -> Any:
    """Return one element of inline data.

    Raises:
        ValueError: the text is not an element of this type.
    """
    if dtype is DType.BOOL:
        if text not in ("true", "false"):
            raise ValueError("expected true or false")
        return text == "true"
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return dtype.numpy.type(float(text))
    number, (low, high) = int(text), dtype.range
    if not low <= number <= high:
        raise ValueError(f"expected an integer in [{low}, {high}]")
    return number


class _Scope:
    """Values, constants, nodes, states and subgraphs of the graph being parsed."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.constants: dict[Value, Array] = {}
        self.nodes: list[Node] = []
        self.states: list[tuple[Value, Array, Token]] = []
        self.subgraphs: dict[str, Graph] = {}


class _Parser(LiteralCursor):
    def __init__(self, text: str, constants: Mapping[str, Array], source: str):
        super().__init__(text, source)
        self.constants = constants

    # Graphs

    def graph(self, depth: int = 0) -> Graph:
        start = self.next
        self.expect("graph")
        if depth > MAX_DEPTH:
            self.fail(start, f"subgraphs can be nested at most {MAX_DEPTH} deep")
        name = self.name(self.expect_kind("graph"))
        scope = _Scope()
        inputs = self.separated(lambda: self.declare(scope), "(", ")")
        self.expect("->")
        outputs = self.separated(lambda: self.expect_kind("value"), "(", ")")
        self.expect("{")
        while not self.accept("}"):
            self.item(scope, depth)
        return Graph(
            name,
            tuple(inputs),
            tuple(self.lookup(scope, token) for token in outputs),
            tuple(scope.nodes),
            scope.constants,
            tuple(State(value, array, self.lookup(scope, after)) for value, array, after in scope.states),
            scope.subgraphs,
        )

    def item(self, scope: _Scope, depth: int) -> None:
        if self.accept("state"):
            value = self.declare(scope)
            self.expect("initial")
            initial = self.data(value.type)
            self.expect("next")
            scope.states.append((value, initial, self.expect_kind("value")))
        elif self.accept("subgraph"):
            token = self.expect_kind("graph")
            self.expect("=")
            if self.name(token) in scope.subgraphs:
                self.fail(token, f"{token.text} is defined twice")
            scope.subgraphs[self.name(token)] = self.graph(depth + 1)
        elif self.next.kind == "value" and self.tokens[self.index + 1].text == "=":
            token = self.take()
            self.expect("=")
            self.expect("constant")
            type = self.type()
            value = self.define(scope, token, type)
            scope.constants[value] = self.data(type)
        elif self.next.kind in ("value", "word"):
            self.node(scope)
        else:
            self.expected("a node, a constant, a state, a subgraph or '}'")

    def declare(self, scope: _Scope) -> Value:
        token = self.expect_kind("value")
        self.expect(":")
        return self.define(scope, token, self.type())

    def define(self, scope: _Scope, token: Token, type: TensorType) -> Value:
        if token.text in scope.values:
            self.fail(token, f"{token.text} is defined twice")
        scope.values[token.text] = Value(self.name(token), type)
        return scope.values[token.text]

    def lookup(self, scope: _Scope, token: Token) -> Value:
        if token.text not in scope.values:
            self.fail(token, f"{token.text} is not defined")
        return scope.values[token.text]

    # Nodes

    def node(self, scope: _Scope) -> None:
        results: list[tuple[Token, TensorType]] = []
        start = self.next
        while self.next.kind == "value":
            token = self.take()
            self.expect(":")
            results.append((token, self.type()))
            if not self.accept(","):
                break
        if results:
            self.expect("=")
        declared_types = [type for _, type in results]
        op, inputs = self.call(scope, declared_types)
        steps: list[EpilogueStep] = []
        while self.accept("|"):
            position = self.next
            step, operands = self.call(scope, declared_types)
            if None in operands:
                self.fail(position, "a step of an epilogue has no absent operands")
            steps.append(EpilogueStep(step, tuple(v for v in operands if v is not None)))
        draft = Node(op, tuple(inputs), (), tuple(steps))
        try:
            inferred = draft.infer()
        except ABSURD as error:
            self.fail(start, str(error))
        if len(inferred) != len(results):
            self.fail(start, f"{op.name} has {len(inferred)} results; {len(results)} are declared")
        for (token, declared), actual in zip(results, inferred, strict=True):
            if declared != actual:
                rule = f"{op.name} gives {_show(actual)}"
                self.fail(token, f"{token.text} is declared {_show(declared)}; {rule}")
        outputs = tuple(self.define(scope, token, type) for token, type in results)
        scope.nodes.append(Node(op, tuple(inputs), outputs, tuple(steps)))

    def call(self, scope: _Scope, results: list[TensorType]) -> tuple[Op, list[Value | None]]:
        token = self.expect_kind("word")
        op_type = REGISTRY.get(token.text)
        if op_type is None:
            self.fail(token, f"unknown operator {token.text!r}; known are {', '.join(sorted(REGISTRY))}")
        operands = self.separated(lambda: self.operand(scope), "(", ")")
        return self.attributes(token, op_type, results), operands

    def operand(self, scope: _Scope) -> Value | None:
        if self.accept("none"):
            return None
        if self.next.kind != "value":
            self.expected("a value (%name) or none")
        return self.lookup(scope, self.take())

    def attributes(self, token: Token, op_type: type[Op], results: list[TensorType]) -> Op:
        declared = attribute_types(op_type)
        given: dict[str, Any] = {}

        def attribute() -> None:
            name = self.expect_kind("word")
            if name.text not in declared:
                known = ", ".join(declared) or "none"
                self.fail(name, f"{op_type.name} has no attribute {name.text!r}; it has {known}")
            if name.text in given:
                self.fail(name, f"{name.text} is given twice")
            self.expect("=")
            given[name.text] = self.literal(declared[name.text], name.text)

        if self.sees("{"):
            self.separated(attribute, "{", "}")
        for name, hint in declared.items():
            inferred = from_results(name, hint, results)
            if name not in given and inferred is not None:
                given[name] = inferred
        missing = [name for name in required_attributes(op_type) if name not in given]
        if missing:
            self.fail(token, f"{op_type.name} needs {', '.join(missing)}")
        try:
            return op_type(**given)
        except ABSURD as error:
            self.fail(token, str(error))

    # Data

    def data(self, type: TensorType) -> Array:
        token = self.next
        if token.kind == "dense":
            return self.dense(self.take(), type)
        if not self.sees("["):
            self.expected("data: [elements] or dense<…>")
        elements = self.separated(lambda: self.element(type.dtype), "[", "]")
        if len(elements) != type.size:
            self.fail(token, f"expected {type.size} elements of {type}; found {len(elements)}")
        return np.array(elements, type.dtype.numpy).reshape(type.shape)

    def element(self, dtype: DType) -> Any:
        token = self.take()
        try:
            return read_element(token.text, dtype)
        except ValueError as error:
            self.fail(token, f"{token.text!r} is not a valid {dtype.value}: {error}")

    def dense(self, token: Token, type: TensorType) -> Array:
        body = token.text[len("dense<") : -1]
        algorithm, colon, key = body.partition(":")
        if colon:
            array = self.constants.get(key)
            if algorithm != "sha256" or array is None:
                self.fail(token, f"the data of {key} is elided; pass it, or print the graph in full")
            if array.shape != type.shape or array.dtype != type.dtype.numpy:
                self.fail(token, f"expected {type}; {key} is {array.dtype}{list(array.shape)}")
            return array
        try:
            raw = base64.b64decode(body, validate=True)
        except ValueError as error:  # also of characters that are not ASCII
            self.fail(token, f"not base64: {error}")
        if len(raw) != type.nbytes:
            self.fail(token, f"expected {type.nbytes} bytes of {type}; found {len(raw)}")
        little = cast("Array", np.frombuffer(raw, type.dtype.numpy.newbyteorder("<")))
        return little.astype(type.dtype.numpy).reshape(type.shape)


def _show(type: TensorType) -> str:
    quant = type.quant
    if quant is None:
        return str(type)
    if quant.axis is None:
        return f"{type} (scale {quant.scale!r}, zero point {quant.zero_point})"
    return f"{type} ({len(quant.scales)} scales along axis {quant.axis})"
