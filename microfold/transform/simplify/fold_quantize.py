"""Takes the way through floating point out of what begins and ends in integers.

    %a: float32[8] = dequantize(%x)
    %y: int8[8] q(0.1, 3) = quantize(%a)           ->   nothing: %x is int8[8] q(0.1, 3)

    %a: float32[8] = dequantize(%x)
    %y: int8[8] q(0.2, 5) = quantize(%a)           ->   %y: int8[8] q(0.2, 5) = requantize(%x)

    %a: float32[8] = dequantize(%x)
    %b: float32[8] = tanh(%a)
    %y: int8[8] q(0.0078125, 0) = quantize(%b)     ->   %y: int8[8] q(...) = lookup(%x) {table=(...)}

Whatever elementwise operators stand between, an 8-bit value has 256 numbers: the chain is evaluated on all
of them. If the results are the numbers themselves, the chain goes; if they are those of `requantize`, which
computes with integers what the chain computes with floats, it is one; else they become the table of a
`lookup`. A 16-bit value has 65536 numbers: enough to prove the first two, too many for a table. Two
`requantize` in a row are such a chain, too. The bits stay in every case.

Constants of one element may take part (a product with 0.5). Values between that something else reads keep
the chain: they are computed anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe
from microfold.ir.op import Op, Pattern
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.elementwise.clip import Clip
from microfold.ops.elementwise.dequantize import Dequantize
from microfold.ops.elementwise.lookup import Lookup
from microfold.ops.elementwise.quantize import Quantize
from microfold.ops.elementwise.requantize import Requantize
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

_NARROW = (DType.INT8, DType.UINT8, DType.INT16)
_TABLES = (DType.INT8, DType.UINT8)


@dataclass(frozen=True)
class _Chain:
    """Elementwise nodes in a row.

    Attributes:
        source: what the first node reads.
        nodes: from the first to the last.
    """

    source: Value
    nodes: tuple[Node, ...]

    def evaluate(self, site: RewriteSite[None]) -> Array:
        """The last node's result for every number of the source's type, lowest first."""
        numbers = _numbers(self.source.type)
        tensor = Tensor(self.source.type.with_shape(numbers.shape), numbers)
        for node in self.nodes:
            operands = [self._constant(site, value) or tensor for value in node.operands]
            (tensor,) = node.op.evaluate(operands)
        return tensor.data

    def _constant(self, site: RewriteSite[None], value: Value) -> Tensor | None:
        array = site.array(value)
        return Tensor(value.type.with_shape((1,)), array.reshape(1)) if array is not None else None


@function_pass(opt_level=2)
def fold_quantize(graph: Graph, context: PassContext) -> Graph:
    """Replace chains that end in quantize or requantize by the shortest thing that has their bits."""

    def fold(site: RewriteSite[None]) -> Replacement:
        node, out = site.node, site.node.output.type
        chain = _chain(site)
        if isinstance(chain, str):
            context.declined(node, chain)
            return None
        source, words = chain.source, " and ".join(inner.op.name for inner in chain.nodes)
        if len(chain.nodes) == 1 and source.type != out:
            return None
        results = chain.evaluate(site)
        if source.type == out and not node.epilogue and np.array_equal(results, _numbers(out)):
            context.fired(node, f"{words} give back every {out.dtype.value}")
            return source
        if len(chain.nodes) == 1:
            return None
        shorter = Requantize(out.element)
        if _has_results(shorter, source.type, results):
            context.fired(node, f"{words} give the bits of one requantize")
            return site.emit(shorter, source, epilogue=site.epilogue)
        if source.type.dtype not in _TABLES:
            context.declined(node, f"{words} are no requantize; a table would have {results.size} entries")
            return None
        context.fired(node, f"{words} become one table of {results.size} results")
        lookup = Lookup(tuple(int(n) for n in results), out.element)
        return site.emit(lookup, source, epilogue=site.epilogue)

    return forward_rewrite(graph, {Quantize: fold, Requantize: fold})


def _chain(site: RewriteSite[None]) -> _Chain | str:
    """The chain that ends here and begins with a narrow integer; or why there is none."""
    source = site.value(0)
    assert source is not None
    nodes: list[Node] = [Node(site.node.op, (source,), site.node.outputs)]
    if isinstance(site.node.op, Requantize):
        inner = site.builder.producer(source)
        # A clip is better off in the epilogue of what it follows.
        if inner is not None and not isinstance(inner.op, Clip) and _why_not(site, inner) is None:
            (value,) = _data(site, inner)
            if _is_narrow(value.type):
                nodes.insert(0, inner)
                source = value
    else:
        while not isinstance(nodes[0].op, Dequantize):
            inner = site.builder.producer(source)
            reason = f"no node computes %{source.name}" if inner is None else _why_not(site, inner)
            if reason is not None or inner is None:
                return reason or ""
            nodes.insert(0, inner)
            (source,) = _data(site, inner)
    if site.array(source) is not None:
        return f"%{source.name} is constant, and so is the result"
    if not _is_narrow(source.type):
        return f"%{source.name} must have 8 or 16 bits and one scale; it is {source.type}"
    return _Chain(source, tuple(nodes))


def _is_narrow(type: TensorType) -> bool:
    return type.dtype in _NARROW and type.quant is not None and type.quant.axis is None


def _data(site: RewriteSite[None], node: Node) -> list[Value]:
    """The operands that are not constant."""
    return [value for value in node.operands if site.array(value) is None]


def _why_not(site: RewriteSite[None], node: Node) -> str | None:
    """Why a node cannot be the part of a chain that another one follows."""
    where = describe(node)
    if node.op.pattern not in (Pattern.ELEMENTWISE, Pattern.BROADCAST) or node.op.has_effect:
        return f"{where} is not elementwise"
    if node.epilogue:
        return f"{where} has an epilogue"
    # A dequantize may serve others as well: the chain reads what it reads.
    if not isinstance(node.op, Dequantize) and site.uses[node.outputs[0]] > 1:
        return f"{where} has other readers"
    data = _data(site, node)
    sizes = [value.type.size for value in node.operands if value not in data]
    if len(data) != 1 or any(size != 1 for size in sizes):
        return f"{where} reads more than one number for each element"
    if data[0].type.shape != node.outputs[0].type.shape:
        return f"{where} broadcasts"
    return None


def _numbers(type: TensorType) -> Array:
    """Every number of an integer type, lowest first."""
    low, high = type.dtype.range
    return np.arange(low, high + 1).astype(type.dtype.numpy)


def _has_results(op: Op, source: TensorType, results: Array) -> bool:
    """The operator admits the type and gives these results for all its numbers."""
    numbers = _numbers(source)
    try:
        (tensor,) = op.evaluate([Tensor(source.with_shape(numbers.shape), numbers)])
    except TypeRuleError:
        return False
    return bool(np.array_equal(tensor.data, results))
