"""Recognises GELU that is written out as tanh, products and sums.

    %c: float32[8] = mul(%x_cubed, %0.044715)
    %s: float32[8] = add(%x, %c)
    %u: float32[8] = mul(%s, %0.79788456)
    %t: float32[8] = tanh(%u) {…}
    %o: float32[8] = add(%t, %1)
    %h: float32[8] = mul(%x, %0.5)
    %y: float32[8] = mul(%h, %o)    ->    %y: float32[8] = unary(%x) {function="gelu_tanh", out=float32}

The argument of tanh must be ``sqrt(2/pi) (x + 0.044715 x^3)`` as a polynomial in one value x. The product of
the factors after it must be ``x / 2``. The order of sums and products is free. PyTorch and Keras models have
this form if the converter has not made one operator of it. The pass changes float32 only: the steps of a
quantised graph round in between, which no single operator reproduces. `fold_quantize` makes tables of int8
chains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import DType, ElementType
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import Unary
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

_FLOAT = ElementType(DType.FLOAT32)
# Polynomial: coefficients by exponent.
_Polynomial = Mapping[int, float]
_SCALE = math.sqrt(2 / math.pi)
_INNER: _Polynomial = {1: _SCALE, 3: _SCALE * 0.044715}
_OUTER: _Polynomial = {1: 0.5}
# Relative tolerance of each coefficient: exporters print at most the digits of float32.
_TOLERANCE = 1e-5
# Maximum number of nodes above tanh, and of products after it: twice the longest known spelling.
_MOST_NODES = 16


@function_pass(opt_level=3)
def recognize_gelu(graph: Graph, context: PassContext) -> Graph:
    """Replace tanh, products and sums of float32 that compute GELU by one GELU operator."""
    if not any(isinstance(node.op, Tanh) for node in graph.nodes):
        return graph
    search = _Search(graph)
    found: dict[Node, Value] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Tanh) or node.output.type.dtype is not DType.FLOAT32 or node.epilogue:
            continue
        result = search.gelu_of(node)
        if isinstance(result, str):
            context.declined(node, result)
        else:
            last, x = result
            context.fired(last, f"with tanh %{node.output.name}, it is the GELU of %{x.name}")
            found[last] = x
    if not found:
        return graph

    def rewrite(site: RewriteSite[None]) -> Replacement:
        x = found.get(site.node)
        return site.emit(Unary("gelu_tanh", _FLOAT), site.replaced.get(x, x)) if x is not None else None

    return forward_rewrite(graph, rewrite)


class _Search:
    def __init__(self, graph: Graph):
        self.constants, self.producers = graph.constants, graph.producers()
        self.consumers, self.uses = graph.consumers(), graph.use_counts()

    def gelu_of(self, tanh: Node) -> tuple[Node, Value] | str:
        """Return the last node of the GELU that contains a tanh, and its operand; or why there is none."""
        (inner,) = tanh.operands
        x = next((v for v in self._cone(inner) if _equal(self._polynomial(inner, v), _INNER)), None)
        if x is None:
            return "its argument is not sqrt(2/pi) (x + 0.044715 x^3) of a value x"
        # 1 + tanh, then products with x and a half.
        last = self._only_reader(tanh.output)
        if (
            last is None
            or not isinstance(last.op, Add)
            or not self._is_number(_other(last, tanh.output), 1.0)
        ):
            return "its only reader must be the sum with 1"
        factor: _Polynomial = {0: 1.0}
        for _ in range(_MOST_NODES):
            value = last.output
            last = self._only_reader(value)
            other = _other(last, value) if last is not None and isinstance(last.op, Mul) else None
            more = self._polynomial(other, x) if other is not None else None
            if last is None or more is None:
                break
            factor = _product(factor, more)
            if _equal(factor, _OUTER) and last.output.type == x.type and not last.epilogue:
                return last, x
        return f"its result is not multiplied by x / 2, for x = %{x.name}"

    def _cone(self, value: Value) -> Iterator[Value]:
        """Return the values from which sums and products compute a value."""
        seen: dict[Value, None] = {value: None}
        pending = [value]
        while pending and len(seen) < 2 * _MOST_NODES:
            node = self._arithmetic(pending.pop())
            fresh = [v for v in (node.operands if node is not None else ()) if v not in seen]
            seen |= dict.fromkeys(fresh)
            pending += fresh
        return (v for v in seen if v not in self.constants)

    def _polynomial(self, value: Value, x: Value) -> _Polynomial | None:
        """Return a value as a polynomial in another one, or None if it is no short polynomial."""
        known: dict[Value, _Polynomial | None] = {x: {1: 1.0}}
        pending = [value]
        while pending:
            current = pending[-1]
            node = self._arithmetic(current)
            if current in known:
                pending.pop()
            elif current in self.constants:
                array = self.constants[current]
                known[current] = {0: float(array.reshape(()))} if array.size == 1 else None
            elif node is None or len(known) > 2 * _MOST_NODES:
                known[current] = None
            elif all(operand in known for operand in node.operands):
                known[current] = _combined(node, [known[operand] for operand in node.operands])
            else:
                pending += [operand for operand in node.operands if operand not in known]
        return known[value]

    def _arithmetic(self, value: Value) -> Node | None:
        """Return the producer of a value if it is a sum, a difference, a product or a square."""
        node = self.producers.get(value)
        if node is None or node.epilogue or value.type.dtype is not DType.FLOAT32:
            return None
        is_square = isinstance(node.op, Unary) and node.op.function == "square"
        return node if is_square or isinstance(node.op, Add | Sub | Mul) else None

    def _only_reader(self, value: Value) -> Node | None:
        readers = self.consumers.get(value, [])
        return readers[0] if len(readers) == 1 and self.uses[value] == 1 else None

    def _is_number(self, value: Value | None, number: float) -> bool:
        array = self.constants.get(value) if value is not None else None
        return array is not None and array.size == 1 and float(array.reshape(())) == number


def _other(node: Node, value: Value) -> Value | None:
    """Return the other operand of a node."""
    first, second = node.operands
    return second if first is value else first


def _combined(node: Node, operands: list[_Polynomial | None]) -> _Polynomial | None:
    polynomials = [polynomial for polynomial in operands if polynomial is not None]
    if len(polynomials) < len(operands):
        return None
    first, second = polynomials[0], polynomials[-1]
    if isinstance(node.op, Add | Sub):
        sign = 1.0 if isinstance(node.op, Add) else -1.0
        return {e: first.get(e, 0.0) + sign * second.get(e, 0.0) for e in first.keys() | second.keys()}
    return _product(first, second)


def _product(first: _Polynomial, second: _Polynomial) -> _Polynomial:
    found: dict[int, float] = {}
    for e, a in first.items():
        for f, b in second.items():
            found[e + f] = found.get(e + f, 0.0) + a * b
    return found


def _equal(first: _Polynomial | None, second: _Polynomial) -> bool:
    if first is None:
        return False
    return all(
        math.isclose(first.get(e, 0.0), second.get(e, 0.0), rel_tol=_TOLERANCE, abs_tol=1e-9)
        for e in first.keys() | second.keys()
    )
