"""Changes the layout in which a caller passes and receives images.

    graph @g(%x: int8[1,3,8,8]) -> (%y) {                   graph @g(%x: int8[1,8,8,3]) -> (%y) {
      %t: int8[1,8,8,3] = transpose(%x) {...}       ->        %x#1: int8[1,3,8,8] = transpose(%x) {...}
      ...                                                     %t: int8[1,8,8,3] = transpose(%x#1) {...}

                                                                                        (layout="NHWC")

An input or output changes if it has four axes, and if its own layout can be detected and differs. The layout
of an input is detected from the first operators that its value reaches through elementwise operators, pads,
slices and concatenations. A transpose by (0, 2, 3, 1) reads NCHW, and a transpose by (0, 3, 1, 2) reads NHWC,
also if axes of extent 1 make it a reshape. An operator over images reads its own layout. The layout of an
output is detected in the same way, from the operators that compute it. If no layout or several layouts are
detected, nothing changes.

The pass only adds transposes. It runs on the imported graph, which is the reference for comparisons;
`optimize_layout_transform` then cancels them against the transposes of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

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
from microfold.transform.layout.propagation.elementwise import is_elementwise

MODEL = "model"
_TO_NHWC = layouts.permutation("NCHW", "NHWC")
_TO_NCHW = layouts.permutation("NHWC", "NCHW")


@module_pass(opt_level=0)
class IoLayout(Struct, frozen=True):
    """Change of the layout of a model's image inputs and outputs.

    Attributes:
        layout: requested layout, e.g. ``NHWC``; ``model`` leaves all unchanged.

    Raises:
        InputError: the layout is no layout of images, or it is blocked.
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
    """Return the graph with its image inputs and outputs in `layout`; the same graph if that is ``model``."""
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
    """Return the own layout of an input or output if it has to change, else None; record the decision."""
    where = f"{what} %{value.name}"
    if value.type.rank != len(layout):
        context.declined(where, f"it has {value.type.rank} axes")
    elif len(shown) != 1:
        found = " and ".join(sorted(shown)) or "none"
        context.declined(where, f"its own layout is not clear: {found} detected")
    elif shown == {layout}:
        context.declined(where, f"it is already {layout}")
    elif value.type.quant is not None and value.type.quant.axis is not None:
        context.declined(where, "it has a scale for each channel")
    else:
        (own,) = shown
        context.fired(where, f"the model has it in {own}, the caller in {layout}")
        return own
    return None


def _shown(value: Value, look: Callable[[Value], tuple[set[str], Iterable[Value]]]) -> set[str]:
    """Return the layouts that are detected along the paths from a value that `look` follows."""
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
    """Return the layouts that the readers of a value imply, and results that have the value's layout."""
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
    """Return the layouts that the producer of a value implies, and operands that have the value's layout."""
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
    """Return the layouts of operand and result that a transpose, or an equivalent reshape, implies."""
    shape, result = node.operands[0].type.shape, node.outputs[0].type.shape
    if len(shape) != len(result) or len(shape) != len(layouts.NHWC):
        return []
    found = [(("NCHW", "NHWC"), _TO_NHWC), (("NHWC", "NCHW"), _TO_NCHW)]
    if isinstance(node.op, Transpose):
        return [pair for pair, order in found if node.op.permutation == order]
    # A reshape that changes nothing implies no layout.
    return [pair for pair, order in found if _is_view(shape, order) == result != shape]


def _is_view(shape: Shape, order: tuple[int, ...]) -> Shape | None:
    """Return the shape after a transpose that moves only axes of extent 1; None if it moves other axes."""
    moved = [axis for axis in order if shape[axis] != 1]
    return tuple(shape[axis] for axis in order) if moved == sorted(moved) else None
