"""Lets a caller hand images in, and take them, in another layout than the model has them.

    graph @g(%x: int8[1,3,8,8]) -> (%y) {                   graph @g(%x: int8[1,8,8,3]) -> (%y) {
      %t: int8[1,8,8,3] = transpose(%x) {...}       ->        %x#1: int8[1,3,8,8] = transpose(%x) {...}
      ...                                                     %t: int8[1,8,8,3] = transpose(%x#1) {...}

                                                                                        (layout="NHWC")

Exactly those inputs and outputs change that have four axes, whose own layout shows, and is another one. The
layout of an input shows in the first operators that its value reaches, through elementwise ones, pads, slices
and concatenations: a transpose by (0, 2, 3, 1) reads NCHW, one by (0, 3, 1, 2) reads NHWC, also where axes of
extent 1 make it a reshape; an operator over images reads its own layout. The layout of an output shows in the
same way, in what it is computed from. Where nothing shows, or different layouts do, nothing changes.

The pass adds transposes only. It runs on the graph as imported, which is what results are compared with;
`optimize_layout_transform` then cancels the transposes against those of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from microfold.errors import InputError, TypeRuleError
from microfold.ir import layout as layouts
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, make_node, rewire
from microfold.ir.types import Shape
from microfold.ops.image import layout_of
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass
from microfold.support.frozen import frozen
from microfold.transform.layout.propagation.elementwise import is_elementwise

MODEL = "model"
_TO_NHWC = layouts.permutation("NCHW", "NHWC")
_TO_NCHW = layouts.permutation("NHWC", "NCHW")


@module_pass(opt_level=0)
@frozen
class IoLayout:
    """Give images that enter and leave a model another layout.

    Attributes:
        layout: e.g. ``NHWC``; ``model`` leaves all as they are.

    Raises:
        InputError: it is no layout of images, or a blocked one.
    """

    layout: str = MODEL

    def __post_init__(self) -> None:
        if self.layout == MODEL:
            return
        try:
            layouts.check_image(self.layout)
            layouts.permutation(layouts.NHWC, self.layout)
        except TypeRuleError as error:
            raise InputError(f"io_layout: {error}") from None

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        return with_io_layout(graph, self.layout, context)


def with_io_layout(graph: Graph, layout: str, context: PassContext) -> Graph:
    """The graph with its images handed in and out in `layout`; itself if that is ``model``."""
    if layout == MODEL:
        return graph
    context = replace(context, pass_name="io_layout")
    readers, producers = graph.consumers(), graph.producers()
    replaced: dict[Value, Value] = {}
    first: list[Node] = []
    inputs: list[Value] = []
    for value in graph.inputs:
        own = _own(context, layout, "input", value, _shown(value, lambda v: _reads(v, readers.get(v, []))))
        inputs.append(value)
        if own is not None:
            order = layouts.permutation(layout, own)
            shape = tuple(value.type.shape[axis] for axis in layouts.permutation(own, layout))
            inputs[-1] = Value(value.name, value.type.with_shape(shape))
            first.append(make_node(Transpose(order), [inputs[-1]], [value.name]))
            replaced[value] = first[-1].output
    last: list[Node] = []
    outputs: list[Value] = []
    for value in graph.outputs:
        own = _own(context, layout, "output", value, _shown(value, lambda v: _gives(producers.get(v))))
        outputs.append(replaced.get(value, value))
        if own is not None:
            order = layouts.permutation(own, layout)
            last.append(make_node(Transpose(order), [outputs[-1]], [value.name]))
            outputs[-1] = last[-1].output
    if not first and not last:
        return graph
    nodes = (*first, *(rewire(node, replaced) for node in graph.nodes), *last)
    state = tuple(replace(s, next=replaced.get(s.next, s.next)) for s in graph.state)
    return replace(graph, inputs=tuple(inputs), outputs=tuple(outputs), nodes=nodes, state=state)


def _own(context: PassContext, layout: str, what: str, value: Value, shown: set[str]) -> str | None:
    """The layout of an end that has to change."""
    where = f"{what} %{value.name}"
    if value.type.rank != len(layout):
        context.declined(where, f"it has {value.type.rank} axes")
    elif len(shown) != 1:
        found = " and ".join(sorted(shown)) or "none"
        context.declined(where, f"its own layout does not show: {found} found")
    elif shown == {layout}:
        context.declined(where, f"it is {layout} as it is")
    elif value.type.quant is not None and value.type.quant.axis is not None:
        context.declined(where, "it has a scale for each channel")
    else:
        (own,) = shown
        context.fired(where, f"the model has it in {own}, the caller in {layout}")
        return own
    return None


def _shown(value: Value, look: Callable[[Value], tuple[set[str], Iterable[Value]]]) -> set[str]:
    """The layouts that show where `look` leads from a value."""
    found: set[str] = set()
    seen, waiting = {value}, [value]
    while waiting:
        layouts_here, further = look(waiting.pop())
        found |= layouts_here
        for other in further:
            if other not in seen and other.type.rank == value.type.rank:
                seen.add(other)
                waiting.append(other)
    return found


def _reads(value: Value, readers: list[Node]) -> tuple[set[str], list[Value]]:
    """What the readers of a value show, and the results that have its layout."""
    found: set[str] = set()
    further: list[Value] = []
    for node in readers:
        own = layout_of(node.op)
        if own is not None and node.inputs[0] is value:
            found.add(own)
        elif isinstance(node.op, Transpose | Reshape):
            found |= {given for given, _ in _turns(node)}
        elif _keeps_axes(node):
            further += node.outputs
    return found, further


def _gives(node: Node | None) -> tuple[set[str], list[Value]]:
    """What the producer of a value shows, and the operands that have its layout."""
    if node is None:
        return set(), []
    own = layout_of(node.op)
    if own is not None:
        return {own}, []
    if isinstance(node.op, Transpose | Reshape):
        return {result for _, result in _turns(node)}, []
    return set(), list(node.operands) if _keeps_axes(node) else []


def _keeps_axes(node: Node) -> bool:
    return is_elementwise(node.op) or isinstance(node.op, Pad | StridedSlice | Concatenate)


def _turns(node: Node) -> list[tuple[str, str]]:
    """Layouts of operand and result that a transpose, or a reshape in place of one, shows."""
    shape, result = node.operands[0].type.shape, node.outputs[0].type.shape
    if len(shape) != len(result) or len(shape) != len(layouts.NHWC):
        return []
    found = [(("NCHW", "NHWC"), _TO_NHWC), (("NHWC", "NCHW"), _TO_NCHW)]
    if isinstance(node.op, Transpose):
        return [pair for pair, order in found if node.op.permutation == order]
    # A reshape that changes nothing shows nothing.
    return [pair for pair, order in found if _is_view(shape, order) == result != shape]


def _is_view(shape: Shape, order: tuple[int, ...]) -> Shape | None:
    """The shape behind a transpose that moves only axes of extent 1; None if it moves others."""
    moved = [axis for axis in order if shape[axis] != 1]
    return tuple(shape[axis] for axis in order) if moved == sorted(moved) else None
