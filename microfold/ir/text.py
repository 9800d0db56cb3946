"""Text form of graphs: readable, diffable and exact.

    graph @net(%x: int8[1,4,4,2] q(0.1, 3)) -> (%y) {
      %w = constant int8[2,1,1,2] q(axis=0, scales=[0.5, 0.25], zero_points=0) [1, -2, 3, 4]
      %y: int8[1,4,4,2] q(0.2, -5) = conv2d(%x, %w, none) {strides=(1, 1), ...} | clip() {minimum=0.0, ...}
    }

- `to_text(parse(text)) == text` for text that `to_text` has made. Constants precede their first reader.
- Attributes are the operator's dataclass fields. An element type `out` defaults to that of the declared
  result, types `results` to those of all declared results, and a `layout` to NHWC. The text contains them
  only
  if they differ. The declared type of a node is the type after its epilogue.
- ``q(scale, zero_point)`` is one scale per tensor. Scales are the shortest decimals that yield the same
  float32; a ``d`` after a scale marks a double that is not a float32. A single `zero_points` applies to all
  channels.
- ``%name`` is quoted as a JSON string if it has unusual characters. ``#n`` distinguishes values with the same
  name.
- Data is a list of elements, ``dense<base64 of the little-endian bytes>``, or, elided,
  ``dense<sha256:digest>``.
- ``none`` is an absent operand, ``//`` starts a comment.

A graph can also have states, ``state %s: TYPE initial DATA next %value``, and subgraphs,
``subgraph @key = graph …``.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from microfold.ir.attributes import attribute_types, from_results, is_usual_layout
from microfold.ir.graph import Graph
from microfold.ir.literals import read_scale
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.parse import parse, read_element
from microfold.ir.tokens import BARE_NAME
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType

__all__ = ["digest", "digests", "parse", "to_text"]

INLINE_ELEMENTS = 16


def to_text(graph: Graph, *, elide: bool = False) -> str:
    """Return a graph as text, which `parse` reads back.

    Args:
        elide: whether to replace the data of large constants by their digests. `parse` then also needs the
            data, see `digests`.
    """
    return "\n".join(Printer(graph, elide).lines("")) + "\n"


def digest(array: Array) -> str:
    """Return the hash of an array's bytes that represents the array in elided text."""
    return hashlib.sha256(_bytes(array)).hexdigest()[:16]


def digests(graph: Graph) -> dict[str, Array]:
    """Return all constants and initial states of a graph by digest, for `parse` of its elided text."""
    arrays = [*graph.constants.values(), *(state.initial for state in graph.state)]
    found = {digest(array): array for array in arrays}
    for body in graph.subgraphs.values():
        found |= digests(body)
    return found


class Printer:
    """Printer of a graph's text form, and the names of its values in the text."""

    def __init__(self, graph: Graph, elide: bool):
        self.graph = graph
        self.elide = elide
        self.names: dict[Value, str] = {}
        self.placed = self._place_constants()
        seen: Counter[str] = Counter()
        for value in self._in_order():
            if value not in self.names:
                ordinal = f"#{seen[value.name]}" if seen[value.name] else ""
                self.names[value] = f"%{_name(value.name)}{ordinal}"
                seen[value.name] += 1

    def _place_constants(self) -> list[list[Value]]:
        """Return the constants to print before each node, and last the constants that no node reads."""
        pending = dict.fromkeys(self.graph.constants)
        placed: list[list[Value]] = []
        for node in self.graph.nodes:
            here = [v for v in dict.fromkeys(node.operands) if v in pending]
            for value in here:
                del pending[value]
            placed.append(here)
        return [*placed, list(pending)]

    def _in_order(self) -> Iterator[Value]:
        """Yield all values in the order of their definitions."""
        yield from self.graph.inputs
        yield from (state.value for state in self.graph.state)
        for node, constants in zip(self.graph.nodes, self.placed, strict=False):
            yield from constants
            yield from node.outputs
        yield from self.placed[-1]

    def lines(self, indent: str) -> Iterator[str]:
        graph, inner = self.graph, indent + "  "
        yield f"{self.header()} {{"
        for state in graph.state:
            initial = self.data(state.value.type, state.initial)
            declared = f"{self.names[state.value]}: {_type(state.value.type)}"
            yield f"{inner}state {declared} initial {initial} next {self.names[state.next]}"
        for node, constants in zip(graph.nodes, self.placed, strict=False):
            yield from (inner + self.constant(value) for value in constants)
            yield inner + self.node(node)
        yield from (inner + self.constant(value) for value in self.placed[-1])
        for key, body in graph.subgraphs.items():
            first, *rest = Printer(body, self.elide).lines(inner)
            yield f"{inner}subgraph @{_name(key)} = {first}"
            yield from rest
        yield indent + "}"

    def header(self) -> str:
        """Return the graph's name, inputs and outputs."""
        inputs = ", ".join(f"{self.names[v]}: {_type(v.type)}" for v in self.graph.inputs)
        outputs = ", ".join(self.names[v] for v in self.graph.outputs)
        return f"graph @{_name(self.graph.name)}({inputs}) -> ({outputs})"

    def constant(self, value: Value) -> str:
        data = self.data(value.type, self.graph.constants[value])
        return f"{self.names[value]} = constant {_type(value.type)} {data}"

    def data(self, type: TensorType, array: Array) -> str:
        if array.size <= INLINE_ELEMENTS:
            words = [_element(x) for x in array.reshape(-1)]
            back = np.array([read_element(word, type.dtype) for word in words], array.dtype)
            # Elements round-trip, except for a NaN with an unusual bit pattern.
            if back.tobytes() == array.tobytes():
                return f"[{', '.join(words)}]"
        elif self.elide:
            return f"dense<sha256:{digest(array)}>"
        return f"dense<{base64.b64encode(_bytes(array)).decode('ascii')}>"

    def node(self, node: Node) -> str:
        types = [value.type for value in node.outputs]
        operands = [self.names[v] if v is not None else "none" for v in node.inputs]
        calls = [f"{node.op.name}({', '.join(operands)}){attributes(node.op, types)}"]
        for step in node.epilogue:
            extra = ", ".join(self.names[v] for v in step.operands)
            calls.append(f"{step.op.name}({extra}){attributes(step.op, types)}")
        return f"{self.results(node)}{' | '.join(calls)}"

    def results(self, node: Node) -> str:
        """Return the text before a node's operator: its results and ``=``."""
        results = ", ".join(f"{self.names[v]}: {_type(v.type)}" for v in node.outputs)
        return f"{results}{' = ' if results else ''}"


def attributes(op: Op, results: list[TensorType]) -> str:
    """Return the text of an operator's attributes in a node with results of these types."""
    shown: list[str] = []
    for name, declared in attribute_types(type(op)).items():
        value = getattr(op, name)
        if is_usual_layout(name, value):
            continue
        if value is None or value != from_results(name, declared, results):
            if declared is float and value is not None:
                value = float(value)  # an int would be read back as a float
            shown.append(f"{name}={_literal(value)}")
    return f" {{{', '.join(shown)}}}" if shown else ""


def _literal(value: Any) -> str:
    """Return an attribute's value as text; `microfold.ir.parse` reads it by the field's declared type."""
    if value is None:
        return "none"
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return repr(float(value))
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, ElementType):
        return _element_type(value.dtype, value.quant)
    if isinstance(value, TensorType):
        return _type(value)
    if isinstance(value, Quant):
        return _quant(value)
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        return f"({', '.join(map(_literal, items))}{',' if len(items) == 1 else ''})"
    raise TypeError(f"an attribute of type {type(value).__name__} has no text form")


def _name(name: str) -> str:
    return name if re.fullmatch(BARE_NAME, name) else json.dumps(name)


def _type(type: TensorType) -> str:
    return _element_type(type.dtype, type.quant, f"[{','.join(map(str, type.shape))}]")


def _element_type(dtype: DType, quant: Quant | None, shape: str = "") -> str:
    return f"{dtype.value}{shape}" + (f" {_quant(quant)}" if quant is not None else "")


def _quant(quant: Quant) -> str:
    scales = [_scale(scale) for scale in quant.scales]
    points = [str(point) for point in quant.zero_points]
    if quant.axis is None and len(scales) == len(points) == 1:
        return f"q({scales[0]}, {points[0]})"
    axis = "none" if quant.axis is None else quant.axis
    same = len(points) == len(scales) and len(set(points)) == 1
    shown = points[0] if same else f"[{', '.join(points)}]"
    return f"q(axis={axis}, scales=[{', '.join(scales)}], zero_points={shown})"


def _scale(scale: float) -> str:
    text = _decimal(np.float32(scale))
    return text if read_scale(text) == scale else f"{scale!r}d"


def _element(x: Any) -> str:
    if isinstance(x, np.bool_):
        return "true" if x else "false"
    return _decimal(x) if isinstance(x, np.floating) else str(int(x))


def _decimal(x: Any) -> str:
    """Return the shortest decimal that rounds to this numpy float."""
    if not np.isfinite(x):
        return str(float(x))
    if x == 0 or 1e-4 <= abs(float(x)) < 1e16:
        return np.format_float_positional(x, unique=True, trim="0")
    return np.format_float_scientific(x, unique=True, trim="0")


def _bytes(array: Array) -> bytes:
    return array.astype(array.dtype.newbyteorder("<")).tobytes()
