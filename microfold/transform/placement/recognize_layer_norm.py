"""Recognises layer normalisation that is written out as elementary operators.

    %m: float32[1,8,1] = mean(%x) {axes=(2), …}
    %d: float32[1,8,16] = squared_difference(%x, %m)
    %v: float32[1,8,1] = mean(%d) {axes=(2), …}
    %e: float32[1,8,1] = add(%v, %epsilon)
    %r: float32[1,8,1] = rsqrt(%e)
    %s: float32[1,8,16] = mul(%r, %gamma)
    %a: float32[1,8,16] = mul(%x, %s)
    %b: float32[1,8,16] = mul(%m, %s)
    %c: float32[1,8,16] = sub(%beta, %b)
    %y: float32[1,8,16] = add(%a, %c)
        ->
    %y: float32[1,8,16] = standardize(%x, %gamma, %beta) {epsilon=…}

The result must be ``gamma (x - m) r + beta`` as a polynomial in the value x, its mean m and the reciprocal
root r. The order of sums and products is free. The pass changes float32 only, and the sums are rounded in
another order. The steps of a quantised graph round in between, which no single operator reproduces. The pass
runs after all passes that fold scales and shifts into weights; remaining ones stay with the operator. If
kernels are known, the operator must be profitable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, make_node
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import Array, DType, TensorType
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.rsqrt import Rsqrt
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import Unary
from microfold.ops.movement.reshape import Reshape
from microfold.ops.normalize.standardize import Standardize
from microfold.ops.reduce.mean import Mean
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

# Polynomial: coefficients along a row, by the exponents of x, its mean and the reciprocal root.
_Polynomial = Mapping[tuple[int, int, int], Array]
# Maximum number of nodes after the root: twice the longest known spelling.
_MOST_NODES = 20


@function_pass(opt_level=3)
def recognize_layer_norm(graph: Graph, context: PassContext) -> Graph:
    """Replace nodes that standardise the rows of a float32 value by one operator."""
    search = _Search(graph)
    found: dict[Node, _Norm] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Rsqrt) or node.output.type.dtype is not DType.FLOAT32 or node.epilogue:
            continue
        norm = search.norm_of(node)
        reason = norm if isinstance(norm, str) else _dearer(norm, graph, context)
        if reason is not None:
            context.declined(node, reason)
        elif isinstance(norm, _Norm):
            last = norm.nodes[-1]
            context.fired(
                last, f"with rsqrt %{node.output.name}, it is %{norm.x.name} with standardised rows"
            )
            found[last] = norm
    if not found:
        return graph

    def rewrite(site: RewriteSite[None]) -> Replacement:
        norm = found.get(site.node)
        if norm is None:
            return None
        name = site.node.output.name
        constants = [
            site.builder.constant(array, TensorType(DType.FLOAT32, array.shape), f"{name}_{what}")
            for what, array in (("scale", norm.scale), ("shift", norm.shift))
        ]
        return site.emit(Standardize(norm.epsilon), site.replaced.get(norm.x, norm.x), *constants)

    return forward_rewrite(graph, rewrite)


class _Norm(Struct, frozen=True):
    """Detected normalisation.

    Attributes:
        nodes: nodes that only it needs; the last one computes the result.
    """

    x: Value
    epsilon: float
    scale: Array
    shift: Array
    nodes: tuple[Node, ...]


def _dearer(norm: _Norm, graph: Graph, context: PassContext) -> str | None:
    """Return the reason if kernels need fewer cycles for the separate nodes than for one operator."""
    cost = context.node_cost
    if cost is None:
        return None
    constants = {
        Value(what, TensorType(DType.FLOAT32, array.shape)): array
        for what, array in (("scale", norm.scale), ("shift", norm.shift))
    }
    one = make_node(Standardize(norm.epsilon), [norm.x, *constants], [norm.nodes[-1].output.name])
    together = cost(one, Graph("norm", (norm.x,), one.outputs, (one,), constants))
    each = [found for found in (cost(node, graph) for node in norm.nodes) if found is not None]
    if together is not None and together <= sum(each):
        return None
    what = "no kernel" if together is None else f"about {together:.0f} cycles"
    return f"one operator needs {what}; separate nodes need {sum(each):.0f}"


class _Search:
    def __init__(self, graph: Graph):
        self.constants, self.producers = graph.constants, graph.producers()
        self.consumers, self.place = graph.consumers(), {node: i for i, node in enumerate(graph.nodes)}
        self.ends = {*graph.outputs, *(state.next for state in graph.state)}

    def norm_of(self, root: Node) -> _Norm | str:
        """Return the normalisation that contains a reciprocal root, or why there is none."""
        above = self._above(root)
        if isinstance(above, str):
            return above
        x, mean, epsilon, nodes = above
        known: dict[Value, _Polynomial] = {x: {(1, 0, 0): _ONE}, mean: {(0, 1, 0): _ONE}}
        known[root.output] = {(0, 0, 1): _ONE}
        result: tuple[Node, Array, Array] | None = None
        region: list[Node] = []
        for node in self._behind([mean, root.output]):
            polynomial = self._polynomial(node, known, x)
            if polynomial is None:
                continue
            known[node.output] = polynomial
            region.append(node)
            parts = _affine(polynomial)
            if parts is not None and node.output.type == x.type:
                result = node, *parts
        if result is None:
            return f"no node after it computes scale * (x - mean) / deviation + shift, for x = %{x.name}"
        last, scale, shift = result
        inside = self._needed(last, [*nodes, root, *region])
        for node in inside[:-1]:
            readers = self.consumers.get(node.output, [])
            if node.output in self.ends or any(reader not in inside for reader in readers):
                return f"%{node.output.name} has other readers"
        return _Norm(x, epsilon, scale, shift, tuple(inside))

    def _above(self, root: Node) -> tuple[Value, Value, float, list[Node]] | str:
        """Return (value, mean, epsilon, nodes up to the root) of a reciprocal deviation, or the refusal."""
        total = self._producer(root.operands[0])
        if total is None or not isinstance(total.op, Add):
            return "its operand is not the sum of a variance and a number"
        numbers = [v for v in total.operands if v in self.constants and self.constants[v].size == 1]
        others = [v for v in total.operands if v not in self.constants]
        if len(numbers) != 1 or len(others) != 1:
            return "its operand is not the sum of a variance and a number"
        variance = self._producer(others[0])
        squares = self._producer(variance.operands[0]) if variance is not None else None
        if variance is None or squares is None or not _means_rows(variance):
            return "its operand is no variance along the last axis"
        nodes = [squares, variance, total]
        if isinstance(squares.op, SquaredDifference):
            pair = squares.operands
        else:
            is_square = isinstance(squares.op, Unary) and squares.op.function == "square"
            twice = isinstance(squares.op, Mul) and squares.operands[0] is squares.operands[1]
            centred = self._producer(squares.operands[0]) if is_square or twice else None
            if centred is None or not isinstance(centred.op, Sub):
                return "its operand is no mean of squared differences"
            pair, nodes = centred.operands, [centred, *nodes]
        for x, mean in (pair, pair[::-1]):
            source, way = self._through_reshapes(mean)
            of = self._producer(source)
            is_spread = mean.type.shape == _spread(x.type)
            if of is not None and _means_rows(of) and of.operands[0] is x and is_spread:
                epsilon = float(self.constants[numbers[0]].reshape(()))
                if not (epsilon >= 0 and math.isfinite(epsilon)):
                    return f"the sum of a variance and {epsilon:g} may have no root"
                return x, source, epsilon, [of, *way, *nodes]
        return "its operand is no difference from a mean along the last axis"

    def _behind(self, values: list[Value]) -> list[Node]:
        """Return the transitive linear readers of some values, in the order of the graph."""
        found: dict[Node, None] = {}
        pending = [*values]
        while pending and len(found) < _MOST_NODES:
            readers = [node for node in self.consumers.get(pending.pop(0), []) if node not in found]
            linear = [node for node in readers if isinstance(node.op, Add | Sub | Mul | Reshape)]
            found |= dict.fromkeys(linear)
            pending += [node.output for node in linear]
        return sorted(found, key=self.place.__getitem__)

    def _polynomial(self, node: Node, known: Mapping[Value, _Polynomial], x: Value) -> _Polynomial | None:
        """Return the polynomial that a node computes, or None if it is no short polynomial."""
        if node.epilogue or node.output.type.dtype is not DType.FLOAT32:
            return None
        shape, spread, rows = x.type.shape, _spread(x.type), x.type.size // x.type.shape[-1]
        if isinstance(node.op, Reshape):
            # Means and roots, with one number for each row.
            inner = known.get(node.operands[0])
            return inner if inner is not None and node.output.type.size == rows else None
        is_whole = node.output.type.shape == shape
        if not is_whole and node.output.type.size != rows:
            return None
        operands: list[_Polynomial] = []
        for value in node.operands:
            array = self.constants.get(value)
            if array is not None:
                row = _along_row(array, shape[-1])
                if row is None or (row.size > 1 and not is_whole):
                    return None
                operands.append({(0, 0, 0): row})
            elif value in known and value.type.shape in (
                (shape, spread) if is_whole else (node.output.type.shape,)
            ):
                operands.append(known[value])
            else:
                return None
        return _combined(node, *operands)

    def _needed(self, last: Node, among: list[Node]) -> list[Node]:
        """Return the nodes among some that one of them depends on, with that node at the end."""
        wanted, kept = {*last.operands}, [last]
        for node in sorted(set(among) - {last}, key=self.place.__getitem__, reverse=True):
            if node.output in wanted:
                wanted.update(node.operands)
                kept.append(node)
        return kept[::-1]

    def _producer(self, value: Value) -> Node | None:
        """Return the producer of a value if it has one result and no epilogue."""
        node = self.producers.get(value)
        return node if node is not None and not node.epilogue and len(node.outputs) == 1 else None

    def _through_reshapes(self, value: Value) -> tuple[Value, list[Node]]:
        way: list[Node] = []
        while (node := self._producer(value)) is not None and isinstance(node.op, Reshape):
            way.insert(0, node)
            value = node.operands[0]
        return value, way


_ONE = np.array(1, np.float32)


def _means_rows(node: Node) -> bool:
    """Return whether a node computes the mean along the last axis, and otherwise only axes of extent 1."""
    if not isinstance(node.op, Mean) or node.output.type.dtype is not DType.FLOAT32:
        return False
    shape = node.operands[0].type.shape
    return len(shape) - 1 in node.op.axes and all(
        shape[axis] == 1 for axis in node.op.axes if axis < len(shape) - 1
    )


def _spread(x: TensorType) -> tuple[int, ...]:
    """Return the shape of one number for each row, which broadcasts over the row."""
    return (*x.shape[:-1], 1)


def _along_row(array: Array, depth: int) -> Array | None:
    """Return a constant as one number or as one number for each element of a row; None if it is neither."""
    if array.size == 1:
        return array.reshape(())
    return array.reshape(-1) if array.shape[-1:] == (depth,) and array.size == depth else None


def _combined(node: Node, first: _Polynomial, second: _Polynomial) -> _Polynomial | None:
    found: dict[tuple[int, int, int], Array] = {}
    with np.errstate(all="ignore"):
        if isinstance(node.op, Mul):
            for (a, b, c), left in first.items():
                for (d, e, f), right in second.items():
                    key = a + d, b + e, c + f
                    found[key] = found.get(key, np.float32(0)) + left * right
        else:
            sign = np.float32(1 if isinstance(node.op, Add) else -1)
            for key in (*first, *(key for key in second if key not in first)):
                found[key] = first.get(key, np.float32(0)) + sign * second.get(key, np.float32(0))
    return found if len(found) <= 4 and max(map(sum, found)) <= 3 else None


def _affine(polynomial: _Polynomial) -> tuple[Array, Array] | None:
    """Return scale and shift of (x - mean) / deviation, or None if the polynomial is something else."""
    scale, other = polynomial.get((1, 0, 1)), polynomial.get((0, 1, 1))
    if scale is None or other is None or not polynomial.keys() <= {(1, 0, 1), (0, 1, 1), (0, 0, 0)}:
        return None
    shift = polynomial.get((0, 0, 0), np.zeros((), np.float32))
    same = (
        np.allclose(scale, -other, rtol=1e-6, atol=0)
        and np.isfinite(scale).all()
        and np.isfinite(shift).all()
    )
    return (np.asarray(scale, np.float32), np.asarray(shift, np.float32)) if same else None
