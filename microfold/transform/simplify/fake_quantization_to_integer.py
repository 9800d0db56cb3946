"""Moves, picks and compares integers instead of dequantised floats.

    %a: float32[1,8,8,4] = dequantize(%x)                     %b: int8[1,4,4,4] = max_pool2d(%x) {...}
    %y: float32[1,4,4,4] = max_pool2d(%a) {...}         ->    %y: float32[1,4,4,4] = dequantize(%b)

    %a: float32[1,8] = dequantize(%x)                         %c: int8[1,8] q(0.2, 5) = quantize(%a)
    %b: float32[1,16] = concatenate(%a, %f)                   %d: int8[1,8] q(0.2, 5) = quantize(%f)
    %y: int8[1,16] q(0.2, 5) = quantize(%b)             ->    %y: int8[1,16] q(0.2, 5) = concatenate(%c, %d)

Dequantize moves after an operator of this kind if that is exact and does not increase the number of
dequantised elements. Quantize moves before an operator whose result is not smaller than its operands.
`fold_quantize` removes the pairs that meet. (TVM's pass of this name also changes arithmetic, which changes
bits.)

All bits stay the same. For 8 and 16 bits, dequantize maps distinct numbers to distinct floats, in ascending
order: neighbours differ by more than 2^-18 relatively, and the product is rounded by at most 2^-24. Equal
elements therefore stay equal, and the largest element stays the largest. Zero is +0, and no element is
infinite or NaN. Quantize is monotone; the only different floats that compare equal are -0 and +0, and it maps
both to the same number. Constants and bounds that take part must be results of dequantize.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, RewriteSite, Rule, forward_rewrite
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.select import Select
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.gather_nd import GatherNd
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.pool2d import MaxPool2D
from microfold.ops.reduce.arg_max import ArgMax, ArgMin
from microfold.ops.reduce.reduce import ReduceMax, ReduceMin
from microfold.ops.reduce.top_k import TopK
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

_NARROW = (DType.INT8, DType.UINT8, DType.INT16)
_OF_ONE = (BroadcastTo, Gather, GatherNd, Pad, Reshape, ResizeNearestNeighbor, StridedSlice, Transpose)
_OF_ALL = (Concatenate, Maximum, Minimum)
_PICKS = (ArgMax, ArgMin, Clip, MaxPool2D, ReduceMax, ReduceMin, TopK)


@function_pass(opt_level=2)
def fake_quantization_to_integer(graph: Graph, context: PassContext) -> Graph:
    """Move dequantize down and quantize up as long as all bits stay the same."""
    # One sweep may enable rewrites of the next.
    while True:
        result = forward_rewrite(graph, _Rules(graph, context).table())
        if result is graph:
            return graph
        graph = result


class _Rules:
    """Rules of one sweep.

    Attributes:
        narrow: values that are read only in quantised form, with their quantised element type.
        names: name of the quantised result, for values that quantize reads.
    """

    def __init__(self, graph: Graph, context: PassContext):
        self.context = context
        self.consumers = graph.consumers()
        self.ends = {*graph.outputs, *(state.next for state in graph.state)}
        self.uses = graph.use_counts()
        self.producers = graph.producers()
        self.constants = graph.constants
        self.narrow: dict[Value, ElementType] = {}
        self.names: dict[Value, str] = {}
        for node in reversed(graph.nodes):
            self._want(node)

    def table(self) -> dict[type[Op], Rule[None]]:
        movable = (*_OF_ONE, *_OF_ALL, *_PICKS, Select)
        return {Quantize: self.quantize, **dict.fromkeys(movable, self.move)}

    def _want(self, node: Node) -> None:
        """Record the operands that the node reads in quantised form."""
        if isinstance(node.op, Quantize):
            element, wanted = node.op.out, list(node.operands[:1])
        elif len(node.outputs) == 1 and node.outputs[0] in self.narrow:
            element, wanted = self.narrow[node.outputs[0]], self._computed(node)
        else:
            return
        for value in wanted:
            inner = self.producers.get(value)
            if inner is None or not isinstance(inner.op, (*_OF_ONE, *_OF_ALL, Select)):
                continue
            reason = self._stays_behind(inner)
            if reason is None:
                self.narrow[value] = element
                if isinstance(node.op, Quantize):
                    self.names[value] = node.outputs[0].name
            else:
                self.context.declined(node, f"it stays after {describe(inner)}: {reason}")

    def _computed(self, node: Node) -> list[Value]:
        """Return the data operands of a node that are not constant."""
        operands = (node.inputs[index] for index in _data(node))
        return [value for value in operands if value is not None and value not in self.constants]

    def _stays_behind(self, node: Node) -> str | None:
        """Return why quantize cannot move before an operator, or None if it can."""
        if node.epilogue:
            return "it has an epilogue"
        if self.uses[node.outputs[0]] > 1:
            return "its result has other readers"
        computed = self._computed(node)
        floats = {value for value in computed if not self._is_dequantized(value)}
        before, after = sum(value.type.size for value in floats), node.outputs[0].type.size
        if before > after:
            return f"it makes {after} elements of {before}"
        if len(computed) > 1 and len(floats) == len(computed):
            return "it reads several values, but none is dequantized"
        return None

    def _is_dequantized(self, value: Value) -> bool:
        producer = self.producers.get(value)
        return producer is not None and isinstance(producer.op, Dequantize)

    def quantize(self, site: RewriteSite[None]) -> Replacement:
        """Remove a quantize whose operand has been quantised before."""
        if site.node.operands[0] not in self.narrow or site.node.epilogue:
            return None
        return site.inputs[0]

    def move(self, site: RewriteSite[None]) -> Replacement:
        """Let an operator compute with integers: move quantize before it, or dequantize after it."""
        element = self.narrow.get(site.node.outputs[0])
        return self._raise(site, element) if element is not None else self._sink(site)

    def _raise(self, site: RewriteSite[None], element: ElementType) -> Replacement:
        node, op = site.node, site.node.op
        inputs: list[Value | None] = [site.value(index) for index in range(len(node.inputs))]
        quantized: dict[Value, Value] = {}
        for index in _data(node):
            value, array = inputs[index], site.array(node.inputs[index])
            assert value is not None
            if array is not None:
                type = value.type.with_element(element)
                inputs[index] = site.builder.constant(_quantized(array, element), type, value.name)
            elif node.inputs[index] not in self.narrow:
                if value not in quantized:
                    (quantized[value],) = site.builder.emit(Quantize(element), [value], [value.name])
                inputs[index] = quantized[value]
        if isinstance(op, Pad):
            op = replace(op, fill=float(_quantized(np.array([op.fill], np.float32), element)[0]))
        self.context.fired(node, f"after quantize, it moves {element.dtype.value}")
        (old,) = node.outputs
        return site.builder.emit(op, inputs, [self.names.get(old, old.name)])

    def _sink(self, site: RewriteSite[None]) -> Replacement:
        node = site.node
        found = self._sources(site)
        if found is None:
            return None
        if isinstance(found, str):
            self.context.declined(node, found)
            return None
        element, inputs = found
        op = _integer_op(node.op, element)
        if isinstance(op, str):
            self.context.declined(node, op)
            return None
        try:
            op.infer_all([value.type if value is not None else None for value in inputs])
        except TypeRuleError as error:
            self.context.declined(node, str(error))
            return None
        self.context.fired(node, f"it computes the same on {element.dtype.value}")
        names = [value.name for value in node.outputs]
        results = site.builder.emit(op, inputs, names)
        return tuple(
            result if result.type == old.type else site.builder.emit(Dequantize(), [result], [old.name])[0]
            for old, result in zip(node.outputs, results, strict=True)
        )

    def _sources(self, site: RewriteSite[None]) -> tuple[ElementType, list[Value | None]] | str | None:
        """Return the common quantised element type of all data operands, and the operands as integers.

        Return the reason if they have none, or None if no operand is dequantised.
        """
        node, data = site.node, _data(site.node)
        producers = {index: site.producer(index) for index in data}
        nodes = {i: p for i, p in producers.items() if p is not None and isinstance(p.op, Dequantize)}
        if not nodes:
            return None
        if node.epilogue or any(inner.epilogue for inner in nodes.values()):
            return "it has an epilogue"
        first = next(iter(nodes.values()))
        source = first.operands[0]
        element = source.type.element
        if not _is_narrow(source.type):
            return f"%{source.name} must have 8 or 16 bits and one scale; it is {source.type}"
        inputs: list[Value | None] = [site.value(index) for index in range(len(node.inputs))]
        for index in data:
            value = inputs[index]
            assert value is not None
            inner = nodes.get(index)
            if inner is not None:
                if inner.operands[0].type.element != element:
                    return f"%{value.name} and %{first.output.name} come from different element types"
                if not self._moves_all(site, index):
                    return f"%{value.name} has other readers: it is dequantized anyway"
                inputs[index] = inner.operands[0]
                continue
            array = site.array(node.inputs[index])
            if array is None:
                return f"%{value.name} is not dequantized"
            integers = _as_integers(array, element)
            if integers is None:
                return f"%{value.name} has numbers that are no {element.dtype.value} with this scale"
            inputs[index] = site.builder.constant(integers, value.type.with_element(element), value.name)
        before = sum(inner.output.type.size for inner in set(nodes.values()))
        after = sum(value.type.size for value in node.outputs if value.type.dtype is DType.FLOAT32)
        if after > before:
            return f"it makes {after} elements of {before}"
        return element, inputs

    def _moves_all(self, site: RewriteSite[None], index: int) -> bool:
        """Return whether dequantize moves after all readers of an operand."""
        value = site.node.inputs[index]
        assert value is not None
        if value in self.ends:
            return False
        if site.is_only_reader(index):
            return True
        producer = site.producer(index)
        assert producer is not None
        source, readers = producer.operands[0].type, self.consumers.get(value, [])
        return all(_moves_alone(reader, source) for reader in readers if reader is not site.node)


def _data(node: Node) -> tuple[int, ...]:
    """Return the indices of the operands whose elements become elements of the result, or are compared."""
    if isinstance(node.op, _OF_ALL):
        return tuple(range(len(node.inputs)))
    return (1, 2) if isinstance(node.op, Select) else (0,)


def _is_narrow(type: TensorType) -> bool:
    return type.dtype in _NARROW and type.quant is not None and type.quant.axis is None


def _moves_alone(node: Node, source: TensorType) -> bool:
    """Return whether dequantize moves after this reader, whatever the other readers are."""
    if node.epilogue or not isinstance(node.op, (*_OF_ONE, *_PICKS)):
        return False
    op = _integer_op(node.op, source.element)
    if isinstance(op, str) or node.inputs[0] is None:
        return False
    if sum(value.type.size for value in node.outputs if value.type.dtype.is_float) > source.size:
        return False
    try:
        op.infer_all([source, *(v.type if v is not None else None for v in node.inputs[1:])])
    except TypeRuleError:
        return False
    return True


def _integer_op(op: Op, element: ElementType) -> Op | str:
    """Return the operator for integers of this type, or why it does not exist."""
    if isinstance(op, Pad):
        fill = _as_integers(np.array([op.fill], np.float32), element)
        if fill is None:
            return f"{element.dtype.value} with this scale cannot represent the fill {op.fill:g}"
        return replace(op, fill=float(fill[0]))
    if isinstance(op, Clip):
        low, high = (float(x) for x in _dequantized(np.array(element.dtype.range), element))
        for bound, number in zip((op.minimum, op.maximum), op.bounds(element), strict=True):
            integer = _as_integers(np.array([bound], np.float32), element) if low < bound < high else [number]
            if integer is None or integer[0] != number:
                return f"{element.dtype.value} with this scale cannot represent the bound {bound:g}"
        if op.maximum < low or op.minimum > high:
            return "its bounds are beyond the type's range"
    return op


def _dequantized(numbers: Array, element: ElementType) -> Array:
    type = TensorType(element.dtype, numbers.shape, element.quant)
    return Dequantize().reference(Tensor(type, numbers.astype(element.dtype.numpy)))


def _quantized(array: Array, element: ElementType) -> Array:
    return Quantize(element).reference(Tensor(TensorType(DType.FLOAT32, array.shape), array))


def _as_integers(array: Array, element: ElementType) -> Array | None:
    """Return the integers that dequantize to exactly these floats, or None if they do not exist."""
    numbers = _quantized(array, element)
    floats = _dequantized(numbers, element)
    same = np.array_equal(floats, array) and not np.any(np.signbit(array) & (array == 0))
    return numbers if same else None
