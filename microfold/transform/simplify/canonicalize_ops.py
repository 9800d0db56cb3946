"""Rewrites equivalent operators to one canonical form.

    %a: int8[8] = clip(%x) {minimum=0.0, maximum=inf}
    %y: int8[8] = clip(%a) {minimum=-inf, maximum=6.0}  ->  %y: int8[8] = clip(%x) {minimum=0.0, maximum=6.0}

    %a: float32[1,8] = fully_connected(%x, %w, %b)
    %y: float32[1,8] = add(%a, %c)                      ->  %y: float32[1,8] = fully_connected(%x, %w, %bc)

Each rule keeps the bits of integers. In floating point, merging two constants changes the order of rounding.

- Adjacent clips, transposes and pads become one, and also sums and products with constants.
- Operators without effect are removed.
- A difference with a constant becomes a sum, a quotient a product, and a negation a product with -1. A
  quotient becomes a product only if the reciprocals are exact (powers of two); others would be rounded twice,
  which requires relaxed numerics.
- A sum with one constant per channel becomes the bias of the weights before it.
- A grouped convolution with one input channel per group becomes a depthwise convolution.
- A concatenation of adjacent slices of one value becomes one slice, or the value itself.
- The maximum or minimum of a value and a number becomes a clip if the layer before can take one.

Reshapes are removed in between (`remove_redundant_reshape`), because they can hide matches.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, RewriteSite, Rule, forward_rewrite
from microfold.ir.types import Array, DType, ElementType, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.div import Div
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import Unary
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.image import refuses_layout
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass
from microfold.transform.placement.fuse_ops import takes_clip
from microfold.transform.simplify.remove_redundant_reshape import remove_redundant_reshape

_WITH_BIAS = (Conv2D, DepthwiseConv2D, TransposeConv2D, FullyConnected)
_NO_CONSTANT = "not one float32 value and one constant"
_NO_NEIGHBOURS = "no parts are adjacent slices of a value without other readers"


@function_pass(opt_level=3)
def canonicalize_ops(graph: Graph, context: PassContext) -> Graph:
    """Apply all rules until nothing changes."""
    rules = _Rules(context)
    # One round may enable rewrites of the next: a value may be left with a single reader.
    while True:
        result = forward_rewrite(graph, rules.table())
        if remove_redundant_reshape.why_skipped(context) is None:
            result = remove_redundant_reshape(result, context)
        if result is graph:
            return graph
        graph = result


class _Rules:
    def __init__(self, context: PassContext):
        self.context = context

    def table(self) -> dict[type[Op], Rule[None]]:
        return {
            Transpose: self.transpose,
            Clip: self.clip,
            Pad: self.pad,
            Conv2D: self.conv2d,
            Add: self.add,
            Sub: self.sub,
            Mul: self.mul,
            Div: self.div,
            Unary: self.unary,
            Concatenate: self.concatenate,
            Maximum: self.bound,
            Minimum: self.bound,
        }

    def remove(self, site: RewriteSite[None], reason: str) -> Replacement:
        """Replace the node's result by its operand."""
        self.context.fired(site.node, reason)
        return site.inputs[0]

    def decline(self, site: RewriteSite[None], reason: str) -> Replacement:
        """Leave the node unchanged, and record why."""
        self.context.declined(site.node, reason)
        return None

    def transpose(self, site: RewriteSite[None]) -> Replacement:
        node, inner = site.node, _bare_producer(site, Transpose)
        assert isinstance(node.op, Transpose)
        if node.epilogue:
            return self.decline(site, "it has an epilogue")
        order, source = node.op.permutation, site.value(0)
        if inner is not None and isinstance(inner.op, Transpose):
            order, source = tuple(inner.op.permutation[axis] for axis in order), inner.inputs[0]
        if source is not None and order == tuple(range(len(order))):
            self.context.fired(node, "no axis moves")
            return source
        # While the inner transpose has other readers, a merged one would be additional.
        if inner is None:
            return self.decline(site, "no bare transpose computes its operand")
        if not site.is_only_reader(0):
            return self.decline(site, f"%{inner.output.name} has other readers")
        self.context.fired(node, f"a transpose of transpose %{inner.output.name}")
        return site.emit(Transpose(order), source)

    def clip(self, site: RewriteSite[None]) -> Replacement:
        node, inner = site.node, _bare_producer(site, Clip)
        assert isinstance(node.op, Clip)
        if node.epilogue:
            return self.decline(site, "it has an epilogue")
        op, type = node.op, node.output.type
        if _keeps_everything(op, type):
            bounds = f"[{op.minimum:g}, {op.maximum:g}]"
            return self.remove(site, f"every {type.dtype.value} is within its bounds {bounds}")
        if inner is None:
            return self.decline(site, "no bare clip computes its operand")
        assert isinstance(inner.op, Clip)
        low, high = (min(max(x, op.minimum), op.maximum) for x in (inner.op.minimum, inner.op.maximum))
        if Clip(low, high) == inner.op:
            return self.remove(site, f"clip %{inner.output.name} already limits to its bounds")
        # A producer can take a clip into its epilogue only while it has one reader, therefore add no reader.
        if not site.is_only_reader(0):
            return self.decline(site, f"%{inner.output.name} has other readers")
        self.context.fired(node, f"a clip of clip %{inner.output.name}")
        return site.emit(Clip(low, high), inner.inputs[0])

    def pad(self, site: RewriteSite[None]) -> Replacement:
        node, inner = site.node, _bare_producer(site, Pad)
        assert isinstance(node.op, Pad)
        if node.epilogue:
            return self.decline(site, "it has an epilogue")
        if all(pair == (0, 0) for pair in node.op.padding):
            return self.remove(site, "its padding is empty")
        if inner is None:
            return self.decline(site, "no bare pad computes its operand")
        if not site.is_only_reader(0):
            return self.decline(site, f"%{inner.output.name} has other readers")
        assert isinstance(inner.op, Pad)
        if inner.op.fill != node.op.fill:
            return self.decline(site, f"it fills with {node.op.fill:g}, its operand with {inner.op.fill:g}")
        pairs = zip(node.op.padding, inner.op.padding, strict=True)
        total = tuple((a[0] + b[0], a[1] + b[1]) for a, b in pairs)
        self.context.fired(node, f"a pad of pad %{inner.output.name} with the same fill")
        return site.emit(replace(node.op, padding=total), inner.inputs[0])

    def conv2d(self, site: RewriteSite[None]) -> Replacement:
        """Replace [OC, KH, KW, 1] filters of several groups by [1, KH, KW, OC] depthwise filters."""
        node = site.node
        op, image, weights, bias = node.op, site.value(0), site.value(1), site.value(2)
        assert isinstance(op, Conv2D)
        assert image is not None
        assert weights is not None
        layout = refuses_layout(op)
        if layout is not None:
            return self.decline(site, layout)
        if weights.type.shape[3] != 1 or image.type.shape[3] == 1:
            return self.decline(site, "it has no groups of one input channel")
        array = site.array(node.inputs[1])
        if array is None:
            return self.decline(site, "a depthwise convolution, but its filter is not constant")
        quant = weights.type.quant
        if quant is not None and quant.axis is not None:
            quant = replace(quant, axis=3)
        turned = np.ascontiguousarray(array.transpose(3, 1, 2, 0))
        type = TensorType(weights.type.dtype, turned.shape, quant)
        filters = site.builder.constant(turned, type, weights.name)
        self.context.fired(node, "each group has one input channel: it is depthwise")
        depthwise = DepthwiseConv2D(op.strides, op.dilations, op.padding, op.out)
        rest = (bias,) if bias is not None else ()
        return site.emit(depthwise, image, filters, *rest, epilogue=site.epilogue)

    def add(self, site: RewriteSite[None]) -> Replacement:
        found = _float_constant(site)
        if found is None:
            return self.decline(site, _NO_CONSTANT)
        data, value, constant = found
        source = site.value(data)
        assert source is not None
        if not np.any(constant) and source.type == site.node.output.type and not site.node.epilogue:
            self.context.fired(site.node, "it adds 0")
            return source
        return self._bias(site, data, constant) or self._merge(site, data, value, constant)

    def mul(self, site: RewriteSite[None]) -> Replacement:
        found = _float_constant(site)
        if found is None:
            return self.decline(site, _NO_CONSTANT)
        data, value, constant = found
        source = site.value(data)
        assert source is not None
        if np.all(constant == 1) and source.type == site.node.output.type and not site.node.epilogue:
            self.context.fired(site.node, "it multiplies by 1")
            return source
        return self._merge(site, data, value, constant)

    def sub(self, site: RewriteSite[None]) -> Replacement:
        constant = site.array(site.node.inputs[1])
        if constant is None or site.node.output.type.dtype is not DType.FLOAT32:
            return self.decline(site, "its subtrahend is no float32 constant")
        value = site.value(1)
        assert value is not None
        assert isinstance(site.node.op, Sub)
        self.context.fired(site.node, "its subtrahend is constant: it becomes a sum")
        negative = site.builder.constant(-constant, value.type, value.name)
        return site.emit(Add(site.node.op.out), site.value(0), negative, epilogue=site.epilogue)

    def div(self, site: RewriteSite[None]) -> Replacement:
        value, constant = site.value(1), site.array(site.node.inputs[1])
        if value is None or constant is None:
            return self.decline(site, "its divisor is not constant")
        with np.errstate(all="ignore"):
            reciprocal = (np.float32(1) / constant).astype(np.float32)
        if not (_are_normal(constant) and _are_normal(reciprocal)):
            return self.decline(site, "its divisor has no reciprocal in float32")
        is_exact = bool(np.all(np.frexp(constant)[0] * np.sign(constant) == 0.5))
        if not is_exact and self.context.numerics == "exact":
            return self.decline(site, "its divisor is no power of two")
        assert isinstance(site.node.op, Div)
        self.context.fired(site.node, "its divisor is constant: it becomes a product")
        factor = site.builder.constant(reciprocal, value.type, value.name)
        return site.emit(Mul(site.node.op.out), site.value(0), factor, epilogue=site.epilogue)

    def unary(self, site: RewriteSite[None]) -> Replacement:
        node = site.node
        assert isinstance(node.op, Unary)
        if node.op.function != "neg" or node.op.out != ElementType(DType.FLOAT32):
            return self.decline(site, "only the negation of float32 becomes a product")
        self.context.fired(node, "it becomes a product with -1")
        minus_one = TensorType(DType.FLOAT32, ())
        factor = site.builder.constant(np.array(-1, np.float32), minus_one, f"{node.output.name}_sign")
        return site.emit(Mul(node.op.out), site.value(0), factor, epilogue=site.epilogue)

    def concatenate(self, site: RewriteSite[None]) -> Replacement:
        """Merge operands that are adjacent slices of one value."""
        node = site.node
        assert isinstance(node.op, Concatenate)
        if node.epilogue:
            return self.decline(site, "it has an epilogue")
        rows: list[tuple[_Slice, list[Value]]] = []
        for index in range(len(node.inputs)):
            value = site.value(index)
            assert value is not None
            part = _slice_of(site, value)
            both = rows[-1][0].followed_by(part, node.op.axis) if rows else None
            if both is not None:
                rows[-1] = (both, [*rows[-1][1], value])
            else:
                rows.append((part, [value]))
        parts: list[Value] = []
        for row, values in rows:
            if len(values) == 1 or not (row.is_everything or row.is_read_here_only):
                parts += values
            elif row.is_everything:
                parts.append(row.source)
            else:
                parts += site.builder.emit(row.op, [row.source], [node.output.name])
        if len(parts) == len(node.inputs) > 1:
            return self.decline(site, _NO_NEIGHBOURS)
        self.context.fired(
            node, "some of its parts are adjacent in one value" if len(parts) > 1 else "it is one part"
        )
        return parts[0] if len(parts) == 1 else site.emit(node.op, *parts)

    def bound(self, site: RewriteSite[None]) -> Replacement:
        """Replace the maximum or minimum of a float32 value and a number by a clip."""
        node, found = site.node, _float_constant(site)
        if found is None:
            return self.decline(site, _NO_CONSTANT)
        if node.epilogue:
            return self.decline(site, "it has an epilogue")
        data, _, constant = found
        producer, source = site.producer(data), site.value(data)
        if source is None or constant.size != 1 or source.type != node.output.type:
            return self.decline(site, f"{constant.shape} must be one number for all elements")
        number = float(constant.reshape(()))
        if not math.isfinite(number):
            return self.decline(site, f"{number:g} is no finite bound of a clip")
        takes = producer is not None and (isinstance(producer.op, Clip) or takes_clip(producer))
        if producer is None or not takes or not site.is_only_reader(data):
            return self.decline(site, f"no layer computes %{source.name} only for it: a clip is no faster")
        clip = Clip(number, math.inf) if isinstance(node.op, Maximum) else Clip(-math.inf, number)
        self.context.fired(node, f"it becomes a clip for the epilogue of {producer.op.name} %{source.name}")
        return site.emit(clip, source)

    def _merge(self, site: RewriteSite[None], data: int, value: Value, constant: Array) -> Replacement:
        """Merge two sums, or two products, with constants."""
        node, inner = site.node, _bare_producer(site, type(site.node.op), data)
        if inner is None:
            return self.decline(site, f"no bare {node.op.name} computes its operand")
        if not site.is_only_reader(data):
            return self.decline(site, f"%{inner.output.name} has other readers")
        for index in range(2):
            other = site.builder.constants.get(_operand(inner, index))
            if other is None:
                continue
            with np.errstate(over="ignore"):
                both = constant + other if isinstance(node.op, Add) else constant * other
            if both.size > max(constant.size, other.size):
                return self.decline(
                    site,
                    f"the constants of both, {constant.shape} and {other.shape}, would become {both.shape}",
                )
            if not np.isfinite(both).all():
                return self.decline(site, "both constants together exceed float32")
            self.context.fired(node, f"{node.op.name} %{inner.output.name} also has a constant")
            merged = site.builder.constant(both, TensorType(DType.FLOAT32, both.shape), value.name)
            return site.emit(node.op, inner.inputs[1 - index], merged, epilogue=site.epilogue)
        return self.decline(site, f"{node.op.name} %{inner.output.name} has no constant")

    def _bias(self, site: RewriteSite[None], data: int, constant: Array) -> Replacement:
        """Merge a sum with one constant per channel into the bias of the weights before it."""
        node, inner = site.node, site.producer(data)
        if inner is None or not isinstance(inner.op, _WITH_BIAS):
            return None  # `_merge` records the reason
        name = f"{inner.op.name} %{inner.output.name}"
        if inner.epilogue or not site.is_only_reader(data):
            return self.decline(site, f"{name} has {'an epilogue' if inner.epilogue else 'other readers'}")
        layout = refuses_layout(inner.op)
        if layout is not None:
            return self.decline(site, f"{name}: {layout}")
        if inner.output.type != node.output.type or constant.size not in (1, *constant.shape[-1:]):
            return self.decline(site, f"{constant.shape} is no bias: a bias has one constant per channel")
        channels = inner.output.type.shape[-1]
        name, total = f"{node.output.name}_bias", np.broadcast_to(constant.reshape(-1), (channels,))
        if len(inner.inputs) > 2 and inner.inputs[2] is not None:
            bias = site.builder.constants.get(_operand(inner, 2))
            if bias is None:
                return self.decline(site, f"the bias of {inner.op.name} %{inner.output.name} is not constant")
            name, total = _operand(inner, 2).name, bias + total
        self.context.fired(node, f"it is the bias of {inner.op.name} %{inner.output.name}")
        merged = site.builder.constant(total.copy(), TensorType(DType.FLOAT32, (channels,)), name)
        return site.emit(inner.op, *inner.inputs[:2], merged, epilogue=site.epilogue)


class _Slice(Struct, frozen=True):
    """Part of a value.

    Attributes:
        is_read_here_only: whether the slices that it consists of have no other readers.
    """

    source: Value
    op: StridedSlice
    is_read_here_only: bool

    @property
    def is_everything(self) -> bool:
        return self.op.size == self.source.type.shape

    def followed_by(self, other: _Slice, axis: int) -> _Slice | None:
        """Return both slices as one if the other one begins at the end of this one."""
        first, second = self.op, other.op
        if self.source is not other.source or not first.strides == second.strides == (1,) * len(first.size):
            return None
        begin, size = list(first.begin), list(first.size)
        begin[axis] += size[axis]
        size[axis] = second.size[axis]
        if (tuple(begin), tuple(size)) != (second.begin, second.size):
            return None
        size[axis] += first.size[axis]
        op = StridedSlice(first.begin, tuple(size), first.strides)
        return _Slice(self.source, op, self.is_read_here_only and other.is_read_here_only)


def _slice_of(site: RewriteSite[None], value: Value) -> _Slice:
    """Return a value as a slice; all of it if it is no slice."""
    node = site.builder.producer(value)
    if node is not None and isinstance(node.op, StridedSlice) and not node.epilogue:
        return _Slice(node.operands[0], node.op, site.uses[value] == 1)
    shape = value.type.shape
    return _Slice(value, StridedSlice((0,) * len(shape), shape, (1,) * len(shape)), True)


def _operand(node: Node, index: int) -> Value:
    value = node.inputs[index]
    assert value is not None
    return value


def _float_constant(site: RewriteSite[None]) -> tuple[int, Value, Array] | None:
    """Return (index of the data operand, constant, its elements) of a float32 node with one constant."""
    if site.node.output.type.dtype is not DType.FLOAT32:
        return None
    for index in (1, 0):
        value, array = site.value(index), site.array(site.node.inputs[index])
        if value is not None and array is not None and site.array(site.node.inputs[1 - index]) is None:
            return 1 - index, value, array
    return None


def _bare_producer(site: RewriteSite[None], op_type: type[Op], index: int = 0) -> Node | None:
    """Return the producer of an operand if it has this operator and no epilogue."""
    producer = site.producer(index)
    return (
        producer
        if producer is not None and isinstance(producer.op, op_type) and not producer.epilogue
        else None
    )


def _keeps_everything(op: Clip, type: TensorType) -> bool:
    if type.dtype.is_float:
        return op.minimum == -math.inf and op.maximum == math.inf
    return op.bounds(type.element) == type.dtype.range


def _are_normal(array: Array) -> bool:
    """Return whether all elements are normal float32 numbers: not zero, subnormal, infinite or NaN."""
    magnitude = np.abs(array)
    return bool(np.all(np.isfinite(array) & (magnitude >= np.finfo(np.float32).tiny)))
