"""Computes operators in float16 that the target computes faster in it, if numerics are relaxed.

    %a: float32[1,64] = relu(%x)                       %h: float16[1,64] = cast(%a) {dtype=float16}
    %y: float32[1,8] = fully_connected(%a, %w)    ->   %p: float16[1,8] = fully_connected(%h, %w)
                                                       %y: float32[1,8] = cast(%p) {dtype=float32}

The pass converts convolutions and fully connected layers of float32 with constant weights. It also converts
the elementwise operators, pools, pads and concatenations that read their results. Casts surround each of
them; `canonicalize_cast` removes the casts between two of them. Constants are rounded at compile time.
`PassContext.numerics` must be relaxed, and `PassContext.half_precision` must say that the target has float16
arithmetic. Every converted node is recorded in the build report, which states the largest difference of the
outputs.

Two options are the same as in TVM. With `out_dtype=float32`, only convolutions and fully connected layers
change: their results are immediately cast to float32, and the operators after them stay unchanged. Inputs in
`fp16_input_names` are passed as float16, which changes the interface of the model:

    graph @g(%x: float32[1,64])     ->     graph @g(%x: float16[1,64])
                                             %x_single: float32[1,64] = cast(%x) {dtype=float32}

The meaning is float32 arithmetic with results rounded to float16. Kernels may also round sums of up to 64
products. A node with constants beyond the range of float16 (65504) stays float32. The pass does not detect
activations that may exceed this range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.analysis.relaxation import Relaxation
from microfold.errors import InputError
from microfold.ir.functions import transform_named
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe, make_node, rewire
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, RewriteSite, Rule, forward_rewrite
from microfold.ir.types import DType, ElementType, TensorType
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.elementwise.minimum import Minimum
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass

_PRODUCTS = (Conv2D, DepthwiseConv2D, FullyConnected)
# Converted after products only: they are not worth casts of their own.
_FOLLOWERS = (Add, AveragePool2D, Clip, Concatenate, MaxPool2D, Maximum, Minimum, Mul, Pad, Sub)
# Maximum number of elements of a window, which are summed in float16.
_LARGEST_WINDOW = 64


@module_pass(opt_level=3)
class ToMixedPrecision(Struct, frozen=True):
    """Conversion of float32 layers to float16, with casts around them.

    Attributes:
        out_dtype: type of the operators after convolutions and fully connected layers.
        fp16_input_names: inputs of the main graph that become float16.

    Raises:
        InputError: `out_dtype` is another type, or an input does not exist or is no float.
    """

    out_dtype: Literal["float16", "float32"] = "float16"
    fp16_input_names: tuple[str, ...] = ()

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        if self.out_dtype not in ("float16", "float32"):
            raise InputError(f"out_dtype must be float16 or float32; got {self.out_dtype!r}")
        graph = _with_half_inputs(graph, self.fp16_input_names, context)
        half_followers = self.out_dtype == "float16"
        return transform_named(graph, (), lambda body: _converted(body, context, half_followers))


# The pass with default options.
to_mixed_precision = ToMixedPrecision()


def _with_half_inputs(graph: Graph, names: Sequence[str], context: PassContext) -> Graph:
    """Change inputs of the graph to float16, with casts after them."""
    if isinstance(names, str):
        raise InputError(f"fp16_input_names must be a list of names; wrap {names!r} in a list")
    floats = {value.name: value for value in graph.inputs if value.type.dtype.is_float}
    unknown = [name for name in names if name not in floats]
    if unknown:
        raise InputError(
            f"unknown float input {', '.join(unknown)}; float inputs: {', '.join(floats) or 'none'}"
        )
    wide = [floats[name] for name in names if floats[name].type.dtype is DType.FLOAT32]
    reason = _why_exact(context)
    if not wide or reason is not None:
        for value in wide:
            context.declined(f"input %{value.name}", reason or "")
        return graph
    halves = {value: Value(value.name, replace(value.type, dtype=DType.FLOAT16)) for value in wide}
    casts = {v: make_node(Cast(DType.FLOAT32), [half], [f"{v.name}_single"]) for v, half in halves.items()}
    for value in wide:
        change = "it is passed as float16"
        context.fired(f"input %{value.name}", change, Relaxation(f"input %{value.name}", change))
    replaced = {value: node.output for value, node in casts.items()}
    inputs = tuple(halves.get(value, value) for value in graph.inputs)
    nodes = [*casts.values(), *(rewire(node, replaced) for node in graph.nodes)]
    return replace(graph, inputs=inputs).with_nodes(nodes, replaced=replaced)


def _converted(graph: Graph, context: PassContext, half_followers: bool) -> Graph:
    """Put the layers of one graph between casts."""

    def convert(site: RewriteSite[None]) -> Replacement:
        node = site.node
        if node.output.type.dtype is not DType.FLOAT32:
            return None
        producers = [site.producer(index) for index in range(len(node.inputs))]
        if isinstance(node.op, _FOLLOWERS) and not any(map(_was_half, producers)):
            return None
        reason = _why_not(site, context)
        if reason is None and isinstance(node.op, _FOLLOWERS) and not half_followers:
            reason = "out_dtype is float32"
        if reason is not None:
            context.declined(node, reason)
            return None
        change = "its operands and its result are rounded to float16"
        context.fired(node, change, Relaxation(describe(node), change))
        operands = [_narrow(site, site.value(index)) for index in range(len(node.inputs))]
        (result,) = site.builder.emit(_half(node.op), operands, [f"{node.output.name}_half"])
        return site.emit(Cast(DType.FLOAT32), result)

    rules: dict[type[Op], Rule[None]] = dict.fromkeys((*_PRODUCTS, *_FOLLOWERS), convert)
    return forward_rewrite(graph, rules)


def _why_exact(context: PassContext) -> str | None:
    """Return why float16 must not be used, or None if it may."""
    if context.numerics != "relaxed":
        return "numerics must be relaxed for other bits; they are exact"
    return None if context.half_precision else "the target does not compute float16 faster"


def _why_not(site: RewriteSite[None], context: PassContext) -> str | None:
    node = site.node
    if (exact := _why_exact(context)) is not None:
        return exact
    if node.epilogue:
        return "it has an epilogue"
    large = [v.name for v in node.operands if not _fits(site, v)]
    if large:
        return f"constant %{large[0]} has elements beyond float16"
    if isinstance(node.op, AveragePool2D):
        return _large_window(node.op.size)
    if not isinstance(node.op, _PRODUCTS):
        return None
    if any(site.array(v) is None for v in node.operands[1:]):
        return "its weights and its bias must be constant"
    x, weights = (v.type for v in node.operands[:2])
    if isinstance(node.op, Conv2D) and weights.shape[3] != x.shape[3]:
        return "its channels are in groups"
    if isinstance(node.op, DepthwiseConv2D):
        if weights.shape[3] != x.shape[3]:
            return "it must have one output channel for each input channel"
        return _large_window((weights.shape[1], weights.shape[2]))
    return None


def _large_window(size: tuple[int, int]) -> str | None:
    if size[0] * size[1] <= _LARGEST_WINDOW:
        return None
    return f"sums of more than {_LARGEST_WINDOW} elements stay float32; its window is {list(size)}"


def _was_half(producer: Node | None) -> bool:
    """Return whether the node only widens a float16 value."""
    if producer is None or not isinstance(producer.op, Cast) or producer.epilogue:
        return False
    return producer.operands[0].type.dtype is DType.FLOAT16


def _half(op: Op) -> Op:
    """Return the operator for float16."""
    has_result_type = "out" in op.__struct_fields__
    return replace(op, out=ElementType(DType.FLOAT16)) if has_result_type else op  # type: ignore[call-arg]


def _fits(site: RewriteSite[None], value: Value) -> bool:
    array = site.array(value)
    if array is None:
        return True
    with np.errstate(over="ignore"):
        return bool(np.isfinite(array.astype(np.float16)).all())


def _narrow(site: RewriteSite[None], value: Value | None) -> Value | None:
    """Return the operand in float16."""
    if value is None:
        return None
    array = site.builder.constants.get(value)
    if array is not None:
        return site.builder.constant(
            array.astype(np.float16), TensorType(DType.FLOAT16, value.type.shape), value.name
        )
    (narrow,) = site.builder.emit(Cast(DType.FLOAT16), [value], [f"{value.name}_half"])
    return narrow
