"""Changes the element types in which a caller passes inputs and receives outputs.

    graph @g(%x: float32[8]) -> (%y) {                      graph @g(%x: int8[8] q(0.1, 3)) -> (%z) {
      %q: int8[8] q(0.1, 3) = quantize(%x)           ->       %a: float32[8] = dequantize(%x)
      %z: int8[8] q(0.2, 5) = ...                             %q: int8[8] q(0.1, 3) = quantize(%a)
      %y: float32[8] = dequantize(%z)                         ...

                                                              (inputs=("int8",), outputs=("int8",))

The pass only adds conversions, next to those of the model. It runs on the imported graph, which is the
reference for comparisons. `fold_quantize` and `fake_quantization_to_integer` then remove the pairs that keep
all bits, as the one above.

The quantisation is that of the model: of the tensor itself, or for float32 of the conversions that it reaches
through operators that only move elements. A uint8 is the int8 plus 128, and an int16 is the int8 times 256.

A conversion at an input is exact: it does what the caller would do with QUANTIZE, and the network computes
the same bits for the result. In these cases numbers are lost, so that relaxed numerics are required:

- An input becomes quantised, but the model also reads it as float32, or with several quantisations.
- An output becomes quantised, but it is combined from several quantisations.
- An output of 16 bits becomes one of 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from microfold.errors import InputError, TypeRuleError, listed
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, make_node, rewire
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant, TensorType, quantization_fault
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.conversions.requantize import Requantize
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
from microfold.options import io_types
from microfold.passes.context import PassContext
from microfold.passes.decorators import module_pass

_QUANTIZED = (DType.INT8, DType.UINT8, DType.INT16)
# Offset from the numbers of int8, and steps of the type for each step of int8.
_OFFSETS = {DType.INT8: (0, 1), DType.UINT8: (128, 1), DType.INT16: (0, 256)}
# Operators whose first operand has the elements of the result.
_MOVES = (
    *(BroadcastTo, Gather, GatherNd, MaxPool2D, Pad, Reshape),
    *(ResizeNearestNeighbor, StridedSlice, Transpose),
)


@module_pass(opt_level=0)
class IoTypes(Struct, frozen=True):
    """Change of the element types of a model's inputs and outputs.

    Attributes:
        inputs, outputs: types, each ``TYPE`` for all real values or ``NAME=TYPE`` for one.

    Raises:
        InputError: a name is unknown, or a type is not possible. All problems are listed.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def transform(self, graph: Graph, context: PassContext) -> Graph:
        return with_io_types(graph, self.inputs, self.outputs, context)


def with_io_types(graph: Graph, inputs: Sequence[str], outputs: Sequence[str], context: PassContext) -> Graph:
    """Return the graph with other element types of inputs and outputs; see `IoTypes`."""
    if not inputs and not outputs:
        return graph
    context = replace(context, pass_name="io_types")
    consumers, producers, results = graph.consumers(), graph.producers(), {*graph.outputs}
    results.update(state.next for state in graph.state)
    problems: list[str] = []

    def read_as(value: Value) -> _Origin:
        return _follow(value, lambda v: _readers(consumers.get(v, ()), v in results))

    def made_from(value: Value) -> _Origin:
        return _follow(value, lambda v: _sources(producers.get(v)))

    wanted = _wanted("input", graph.inputs, io_types(inputs), problems)
    first: list[Node] = []
    replaced: dict[Value, Value] = {}
    new_inputs = list(graph.inputs)
    for index, value in enumerate(graph.inputs):
        end = _End("input", value, wanted.get(value), read_as, context)
        element = end.element(problems)
        if element is None:
            continue
        new_inputs[index] = Value(value.name, value.type.with_element(element))
        path = [*reversed(end.path), value.type.element]
        nodes = _conversions(new_inputs[index], path, value.name)
        first += nodes
        replaced[value] = nodes[-1].output
    wanted = _wanted("output", graph.outputs, io_types(outputs), problems)
    last: list[Node] = []
    new_outputs = [replaced.get(value, value) for value in graph.outputs]
    for index, value in enumerate(graph.outputs):
        end = _End("output", value, wanted.get(value), made_from, context)
        element = end.element(problems)
        if element is None:
            continue
        nodes = _conversions(new_outputs[index], [*end.path, element], value.name)
        last += nodes
        new_outputs[index] = nodes[-1].output
    if problems:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise InputError(
            f"the inputs and outputs of {graph.name} cannot have these types: {count}\n{listed(problems)}"
        )
    if not first and not last:
        return graph
    nodes = (*first, *(rewire(node, replaced) for node in graph.nodes), *last)
    state = tuple(replace(s, next=replaced.get(s.next, s.next)) for s in graph.state)
    return replace(graph, inputs=tuple(new_inputs), outputs=tuple(new_outputs), nodes=nodes, state=state)


class _Origin(Struct, frozen=True):
    """Quantisations of a float32 tensor in the model.

    Attributes:
        elements: element types that it becomes, or is made from, in the order of the graph.
        is_float: whether the model also computes with it as float32.
    """

    elements: tuple[ElementType, ...]
    is_float: bool


class _End:
    """Input or output whose type is to change.

    Attributes:
        own: quantised element type of the tensor in the model; None if it has none.
    """

    def __init__(
        self,
        what: str,
        value: Value,
        wanted: DType | None,
        origin: Callable[[Value], _Origin],
        context: PassContext,
    ):
        self.what, self.value, self.wanted, self.context = what, value, wanted, context
        self.own: ElementType | None = None
        self.origin = origin

    @property
    def path(self) -> list[ElementType]:
        """Element types between the model's and the new one, whose conversions passes can remove in pairs.

        A float32 is next to a conversion from or to its own integers. Next to a uint8, there is often one
        from or to int8.
        """
        assert self.own is not None
        path = [self.own]
        if self.own.dtype is DType.UINT8:
            signed = _in_type(self.own, DType.INT8)
            assert isinstance(signed, ElementType)
            path.append(signed)
        return path

    def element(self, problems: list[str]) -> ElementType | None:
        """Return the new element type, or None if it does not change or a problem was added."""
        type, wanted = self.value.type, self.wanted
        where = f"{self.what} %{self.value.name}"
        if wanted is None:
            return None
        if type.dtype is wanted:
            self.context.declined(where, f"it is already {wanted.value}")
            return None
        fault = self._fault(type, wanted)
        if isinstance(fault, str):
            problems.append(f"{self.what} {self.value.name!r}: {fault}")
            return None
        self.context.fired(where, f"{type.dtype.value} becomes {wanted.value}")
        return fault

    def _fault(self, type: TensorType, wanted: DType) -> ElementType | str:
        """Return the new element type, or the reason why it is not possible."""
        relaxed = self.context.numerics == "relaxed"
        if type.dtype is DType.FLOAT32:
            origin = self.origin(self.value)
            if not origin.elements:
                verb = "reads" if self.what == "input" else "computes"
                return (
                    f"{wanted.value} requires a quantisation in the model; the model {verb} it as float32: "
                    "keep float32, or quantise the model"
                )
            self.own = origin.elements[0]
            if not relaxed and (origin.is_float or len(origin.elements) > 1):
                others = "is also float32" if origin.is_float else "has several quantisations"
                return (
                    f"{wanted.value} is exact only if the model always has it in one quantisation; it "
                    f"{others}: keep float32, or allow rounding with --numerics relaxed"
                )
        elif is_real(type):
            self.own = type.element
        else:
            scales = f" with {len(type.quant.scales)} scales" if type.quant is not None else ""
            return (
                "only float32, and 8 and 16-bit integers with one scale, can have another type; it is "
                f"{type}{scales}: keep its type"
            )
        if (
            self.what == "output"
            and self.own.dtype is DType.INT16
            and wanted is not DType.FLOAT32
            and not relaxed
        ):
            return (
                f"{wanted.value} has fewer numbers than the int16 of the model, so results would be rounded: "
                "keep int16, or allow rounding with --numerics relaxed"
            )
        return _in_type(self.own, wanted)


def is_real(type: TensorType) -> bool:
    """Return whether a value stands for real numbers and can change its type: float32, or quantised."""
    if type.dtype is DType.FLOAT32:
        return True
    return type.dtype in _QUANTIZED and type.quant is not None and type.quant.axis is None


def _wanted(
    what: str, values: Sequence[Value], types: Mapping[str, str], problems: list[str]
) -> dict[Value, DType]:
    """Return the requested type of each value; a type without a name is for all real values."""
    names = {value.name: value for value in values}
    known = ", ".join(map(repr, names)) or "none"
    found: dict[Value, DType] = {}
    for name, text in types.items():
        if not name:
            found.update({value: DType(text) for value in values if is_real(value.type)} | found)
        elif name in names:
            found[names[name]] = DType(text)
        else:
            problems.append(f"{what} {name!r}: the model has no such {what}; its {what}s are {known}")
    if "" in types and not found:
        problems.append(
            f"{what}s: {types['']} is for float32, and for 8 and 16-bit integers with one scale; none of "
            f"{known} is one: remove the option"
        )
    return found


def _in_type(own: ElementType, wanted: DType) -> ElementType | str:
    """Return the element type of another dtype for the same real values, or why there is none."""
    if wanted is DType.FLOAT32:
        return ElementType(wanted)
    assert own.quant is not None
    (offset, steps), (other_offset, other_steps) = _OFFSETS[own.dtype], _OFFSETS[wanted]
    scale = own.quant.scale * steps / other_steps
    # A zero point of int16 that is no multiple of 256 is rounded: the scale is then kept, not the shift.
    point = round((own.quant.zero_point - offset) * other_steps / steps) + other_offset
    fault = quantization_fault(wanted, (scale,), (point,))
    return fault or ElementType(wanted, Quant.per_tensor(scale, point))


def _conversions(value: Value, elements: Iterable[ElementType], name: str) -> list[Node]:
    """Return the nodes that convert a value to these element types, one after the other."""
    nodes: list[Node] = []
    for element in elements:
        for op in _steps(value.type, element):
            nodes.append(make_node(op, [value], [name]))
            value = nodes[-1].output
    return nodes


def _steps(source: TensorType, element: ElementType) -> list[Op]:
    """Return the operators of a conversion; none if the type is the same."""
    if source.element == element:
        return []
    if element.dtype is DType.FLOAT32:
        return [Dequantize()]
    if source.dtype is DType.FLOAT32:
        return [Quantize(element)]
    try:
        Requantize(element).infer(source)
    except TypeRuleError:  # int16 to uint8
        signed = _in_type(element, DType.INT8)
        assert isinstance(signed, ElementType)
        return [Requantize(signed), Requantize(element)]
    return [Requantize(element)]


def _follow(
    value: Value, look: Callable[[Value], tuple[list[ElementType], Iterable[Value], bool]]
) -> _Origin:
    """Return the quantisations along the paths from a value that `look` follows."""
    elements: dict[ElementType, None] = {}
    is_float = False
    seen, waiting = {value}, [value]
    while waiting:
        here, further, float_here = look(waiting.pop(0))
        elements.update(dict.fromkeys(here))
        is_float |= float_here
        for other in further:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return _Origin(tuple(elements), is_float)


def _readers(readers: Iterable[Node], is_result: bool) -> tuple[list[ElementType], list[Value], bool]:
    """Return the quantisations that readers make, moved values, and whether others read the float."""
    elements: list[ElementType] = []
    further: list[Value] = []
    for node in readers:
        if isinstance(node.op, Quantize):
            elements.append(node.op.out)
        elif isinstance(node.op, (*_MOVES, Concatenate)) and not node.epilogue:
            further += node.outputs
        else:
            is_result = True
    return elements, further, is_result


def _sources(node: Node | None) -> tuple[list[ElementType], list[Value], bool]:
    """Return the quantisation that a value is made from, moved values, and whether it is a computed float."""
    if node is None or node.epilogue:
        return [], [], True
    if isinstance(node.op, Dequantize):
        element = node.operands[0].type.element
        is_narrow = is_real(node.operands[0].type)
        return [element] if is_narrow else [], [], not is_narrow
    if isinstance(node.op, Concatenate):
        return [], list(node.operands), False
    return ([], [node.operands[0]], False) if isinstance(node.op, _MOVES) else ([], [], True)
