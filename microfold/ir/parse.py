"""Parser of the text form; `microfold.ir.text` describes the grammar.

Operators are found by name in the registry: import `microfold.ops` first.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import types
from collections.abc import Mapping
from typing import Any, Union, cast, get_args, get_origin

import numpy as np

from microfold.errors import TypeRuleError
from microfold.ir.attributes import attribute_types, is_result_field
from microfold.ir.graph import Graph, Node, State, Step, Value
from microfold.ir.op import REGISTRY, Op
from microfold.ir.tokens import Cursor, Token
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType


def parse(text: str, *, constants: Mapping[str, Array] | None = None, source: str = "<text>") -> Graph:
    """The graph that a text describes. Nodes are checked against their type rules.

    Args:
        text: the text form of one graph.
        constants: data by digest, for elided text (`microfold.ir.text.digests`).
        source: how errors call the text.

    Raises:
        TextFormError: says where, what was expected and what was found.
    """
    parser = _Parser(text, constants or {}, source)
    graph = parser.graph()
    parser.expect_end()
    return graph


def read_scale(text: str) -> float:
    """A scale: the float32 nearest to the decimal; with a ``d`` behind it, the double."""
    if text.endswith("d"):
        return float(text[:-1])
    with np.errstate(over="ignore"):  # beyond float32: infinite
        return float(np.float32(float(text)))


def read_element(text: str, dtype: DType) -> Any:
    """One element of inline data.

    Raises:
        ValueError: it is no element of that type.
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
    """The values of one graph by the text that refers to them."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.constants: dict[Value, Array] = {}
        self.nodes: list[Node] = []
        self.states: list[tuple[Value, Array, Token]] = []
        self.subgraphs: dict[str, Graph] = {}


class _Parser(Cursor):
    def __init__(self, text: str, constants: Mapping[str, Array], source: str):
        super().__init__(text, source)
        self.constants = constants

    # Graphs

    def graph(self) -> Graph:
        self.expect("graph")
        name = self.name(self.expect_kind("graph"))
        scope = _Scope()
        inputs = self.separated(lambda: self.declare(scope), "(", ")")
        self.expect("->")
        outputs = self.separated(lambda: self.expect_kind("value"), "(", ")")
        self.expect("{")
        while not self.accept("}"):
            self.item(scope)
        return Graph(
            name,
            tuple(inputs),
            tuple(self.lookup(scope, token) for token in outputs),
            tuple(scope.nodes),
            scope.constants,
            tuple(State(value, array, self.lookup(scope, after)) for value, array, after in scope.states),
            scope.subgraphs,
        )

    def item(self, scope: _Scope) -> None:
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
            scope.subgraphs[self.name(token)] = self.graph()
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
        element = results[0][1].element if results else None
        op, inputs = self.call(scope, element)
        steps: list[Step] = []
        while self.accept("|"):
            position = self.next
            step, operands = self.call(scope, element)
            if None in operands:
                self.fail(position, "a step of an epilogue has no absent operands")
            steps.append(Step(step, tuple(v for v in operands if v is not None)))
        draft = Node(op, tuple(inputs), (), tuple(steps))
        try:
            inferred = draft.infer()
        except (TypeRuleError, ValueError, IndexError) as error:
            # The latter two: attributes so far off that the type rule cannot even be stated.
            self.fail(start, str(error))
        if len(inferred) != len(results):
            self.fail(start, f"{op.name} has {len(inferred)} results; {len(results)} are declared")
        for (token, declared), actual in zip(results, inferred, strict=True):
            if declared != actual:
                rule = f"{op.name} gives {_show(actual)}"
                self.fail(token, f"{token.text} is declared {_show(declared)}; {rule}")
        outputs = tuple(self.define(scope, token, type) for token, type in results)
        scope.nodes.append(Node(op, tuple(inputs), outputs, tuple(steps)))

    def call(self, scope: _Scope, result: ElementType | None) -> tuple[Op, list[Value | None]]:
        token = self.expect_kind("word")
        op_type = REGISTRY.get(token.text)
        if op_type is None:
            self.fail(token, f"unknown operator {token.text!r}; known are {', '.join(sorted(REGISTRY))}")
        operands = self.separated(lambda: self.operand(scope), "(", ")")
        return self.attributes(token, op_type, result), operands

    def operand(self, scope: _Scope) -> Value | None:
        if self.accept("none"):
            return None
        if self.next.kind != "value":
            self.expected("a value (%name) or none")
        return self.lookup(scope, self.take())

    def attributes(self, token: Token, op_type: type[Op], result: ElementType | None) -> Op:
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
            if name not in given and is_result_field(name, hint) and result is not None:
                given[name] = result
        required = {f.name for f in dataclasses.fields(op_type) if f.default is dataclasses.MISSING}
        missing = [name for name in declared if name in required - given.keys()]
        if missing:
            self.fail(token, f"{op_type.name} needs {', '.join(missing)}")
        return op_type(**given)

    def literal(self, hint: Any, what: str) -> Any:
        """An attribute's value, read as its declared type."""
        token = self.next
        options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if type(None) in options:
            if self.accept("none"):
                return None
            options = tuple(option for option in options if option is not type(None))
        hint = options[0]
        if hint is bool:
            if not (self.sees("true") or self.sees("false")):
                self.expected(f"true or false for {what}")
            return self.take().text == "true"
        if hint is int:
            return self.integer()
        if hint is float:
            return float(self.expect_kind("number").text.rstrip("d"))
        if hint is str:
            return self.string(self.next, self.expect_kind("string").text)
        if hint is ElementType:
            return ElementType(self.dtype(), self.quant())
        if hint is Quant:
            return self.quant() or self.expected(f"q(…) for {what}")
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            names = {str(member.value): member for member in hint}
            word = self.take()
            if word.text not in names:
                self.fail(word, f"expected one of {', '.join(names)} for {what}; found {word.text!r}")
            return names[word.text]
        if get_origin(hint) is tuple:
            return self.tuple(get_args(hint), what)
        return self.fail(token, f"attribute {what} of type {hint} has no text form")

    def tuple(self, hints: tuple[Any, ...], what: str) -> tuple[Any, ...]:
        start = self.next
        any_length = len(hints) == 2 and hints[1] is Ellipsis
        items: list[Any] = []

        def item() -> None:
            if not any_length and len(items) >= len(hints):
                self.fail(start, f"{what} takes {len(hints)} elements in each pair of parentheses here")
            items.append(self.literal(hints[0 if any_length else len(items)], what))

        self.separated(item, "(", ")")
        if not any_length and len(items) != len(hints):
            self.fail(start, f"{what} takes {len(hints)} elements here; {len(items)} are given")
        return tuple(items)

    # Types and data

    def dtype(self) -> DType:
        token = self.expect_kind("word")
        names = {member.value: member for member in DType}
        if token.text not in names:
            self.fail(token, f"expected an element type ({', '.join(names)}); found {token.text!r}")
        return names[token.text]

    def type(self) -> TensorType:
        dtype = self.dtype()
        start = self.next
        shape = tuple(self.separated(self.integer, "[", "]"))
        if min(shape, default=0) < 0:
            self.fail(start, f"extents must not be negative; they are {list(shape)}")
        return TensorType(dtype, shape, self.quant())

    def quant(self) -> Quant | None:
        if not self.accept("q"):
            return None
        self.expect("(")
        if self.accept("axis"):
            self.expect("=")
            axis = None if self.accept("none") else self.integer()
            for sign in (",", "scales", "="):
                self.expect(sign)
            scales = tuple(self.separated(self.scale, "[", "]"))
            for sign in (",", "zero_points", "="):
                self.expect(sign)
            listed = self.sees("[")
            points = self.separated(self.integer, "[", "]") if listed else [self.integer()] * len(scales)
            quant = Quant(scales, tuple(points), axis)
        else:
            scale = self.scale()
            self.expect(",")
            quant = Quant((scale,), (self.integer(),))
        self.expect(")")
        return quant

    def scale(self) -> float:
        return read_scale(self.expect_kind("number").text)

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
            self.fail(token, f"{token.text!r} is no {dtype.value}: {error}")

    def dense(self, token: Token, type: TensorType) -> Array:
        body = token.text[len("dense<") : -1]
        algorithm, colon, key = body.partition(":")
        if colon:
            array = self.constants.get(key)
            if algorithm != "sha256" or array is None:
                self.fail(token, f"the data of {key} is elided; hand it in, or print the graph in full")
            if array.shape != type.shape or array.dtype != type.dtype.numpy:
                self.fail(token, f"expected {type}; {key} is {array.dtype}{list(array.shape)}")
            return array
        try:
            raw = base64.b64decode(body, validate=True)
        except binascii.Error as error:
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
