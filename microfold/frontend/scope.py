"""What the operators of one subgraph share while it is imported, and how one of them is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from microfold.frontend.bodies import Body
from microfold.frontend.complex_numbers import COMPLEX_NAME
from microfold.frontend.raw import RawTensor
from microfold.frontend.variables import Variable, Variables
from microfold.ir.graph import Graph
from microfold.ir.limits import shape_fault
from microfold.ir.node import Node, Value
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType
from microfold.ops.signal.complex_numbers import PARTS


class Unsupported(Exception):
    """Raised by an importer function; becomes one `Problem` of the model."""

    def __init__(self, reason: str, hint: str = ""):
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def describe(quant: Quant | None) -> str:
    """A quantisation in words."""
    if quant is None:
        return "not quantised"
    if quant.axis is not None:
        return f"{len(quant.scales)} scales along axis {quant.axis}"
    return f"scale {quant.scale:.9g} zero point {quant.zero_point}"


@dataclass
class Allowance:
    """Bytes of constants that the import of a model may still make.

    Attributes:
        total: bytes that it might make at the beginning, see `limits.MADE_BYTES`.
    """

    total: int
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.total

    def take(self, size: int) -> None:
        """Count the bytes of a constant; see `check`."""
        self.check(size)
        self.left -= size

    def check(self, size: int) -> None:
        """Refuse a constant of so many bytes, before it is made, if it would be too large.

        Raises:
            Unsupported: there are not so many left.
        """
        if size > self.left:
            raise Unsupported(
                f"constants that are made while the model is read may take {self.total} bytes in all; "
                f"{self.total - self.left} are taken, and this one takes {size}"
            )


@dataclass
class Scope:
    """What the operators of one subgraph share while it is imported.

    Attributes:
        tensors: all tensors of the subgraph.
        variables: those of the whole model.
        allowance: that of the whole model.
        is_initializer: the subgraph gives variables their initial values.
        initialize: runs an initialiser subgraph.
        enter: imports a subgraph that runs on these operands.
        subgraphs: bodies imported so far, by the names that nodes call them.
        values: tensor index to the value that stands for it.
        constants: arrays of constant values.
        nodes: emitted so far.
        large: float values that may be larger than `float_limits.ORDINARY` though the inputs are not.
        unknown: tensors that cannot have a value because of a problem reported before.
        runs: whether this call is one in which what follows changes state, bool []; None: every call is.
        open_cycles: circular buffers so far that leave open how often what follows runs.
        signed: legacy uint8 values as int8.
        complex: what stands for complex numbers while operators are imported, and their parts, see
            `complex_numbers`.
    """

    tensors: Sequence[RawTensor]
    variables: Variables
    allowance: Allowance
    is_initializer: bool
    initialize: Callable[[int], None]
    enter: Callable[[int, Sequence[Value | Variable]], Body]
    values: dict[int, Value] = field(default_factory=dict[int, Value])
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    nodes: list[Node] = field(default_factory=list[Node])
    unknown: set[int] = field(default_factory=set[int])
    large: set[Value] = field(default_factory=set[Value])
    subgraphs: dict[str, Graph] = field(default_factory=dict[str, Graph])
    runs: Value | None = None
    open_cycles: int = 0
    signed: dict[Value, Value] = field(default_factory=dict[Value, Value])
    complex: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def declared_type(self, index: int) -> TensorType:
        """The type that the file declares; an unknown (-1) dimension is taken as 1.

        Raises:
            Unsupported: it is no type of a value that operators compute.
        """
        tensor = self.tensors[index]
        element = self.declared_element(index)
        if tensor.shape_fault:
            raise Unsupported(f"{tensor.name!r}: {tensor.shape_fault}")
        shape = tuple(1 if extent == -1 else extent for extent in tensor.shape)
        if math.prod(shape) == 0:
            raise Unsupported(f"{tensor.name!r} has no elements: its shape is {list(shape)}")
        return TensorType(element.dtype, shape, element.quant)

    def declared_element(self, index: int) -> ElementType:
        """The element type that the file declares; see `declared_type`."""
        tensor = self.tensors[index]
        if tensor.dtype is None or tensor.dtype is DType.INT4:
            raise Unsupported(
                f"{tensor.name!r} has element type {tensor.type_name}, which is not supported",
                "activations may be int8, int16, uint8, int32 or float32",
            )
        if tensor.quant_fault:
            raise Unsupported(f"{tensor.name!r}: {tensor.quant_fault}", "quantise the model again")
        if tensor.quant is not None and tensor.quant.axis is not None:
            raise Unsupported(
                f"{tensor.name!r} has {len(tensor.quant.scales)} scales; activations must have one",
                "quantise activations per tensor",
            )
        return ElementType(tensor.dtype, tensor.quant)

    def declare(self, index: int) -> None:
        """Give a tensor a value of the type that the file declares; complex numbers get parts.

        Raises:
            Unsupported: there is no value of this type.
        """
        tensor = self.tensors[index]
        if tensor.type_name != COMPLEX_NAME:
            self.values[index] = Value(tensor.name, self.declared_type(index))
            return
        if tensor.shape_fault:
            raise Unsupported(f"{tensor.name!r}: {tensor.shape_fault}")
        shape = tuple(1 if extent == -1 else extent for extent in tensor.shape)
        fault = shape_fault((*shape, PARTS))
        if fault or not math.prod(shape):
            raise Unsupported(f"{tensor.name!r}: {fault or 'it has no elements'}")
        parts = Value(tensor.name, TensorType(DType.FLOAT32, (*shape, PARTS)))
        self.values[index] = self.complex_value(parts)

    def complex_value(self, parts: Value) -> Value:
        """Return a new value that stands for complex numbers of these parts."""
        value = Value(parts.name, parts.type.with_shape(parts.type.shape[:-1]))
        self.complex[value] = parts
        return value

    def in_graph(self, value: Value) -> Value:
        """Return the value of the graph: the parts of what stands for complex numbers."""
        return self.complex.get(value, value)

    def declare_in_place(self, index: int) -> None:
        """A tensor that operators update in place (`is_variable`) becomes state."""
        value = Value(self.tensors[index].name, self.declared_type(index))
        self.values[index] = value
        self.variables.in_place[index] = Variable(value.name, value=value, current=value)
