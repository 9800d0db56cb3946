"""State that the operators of a subgraph share during the import, and the error for unsupported operators."""

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
    """Error of an importer function. It becomes a `Problem` of the model."""

    def __init__(self, reason: str, hint: str = ""):
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def describe(quant: Quant | None) -> str:
    """Return a quantisation in words."""
    if quant is None:
        return "not quantised"
    if quant.axis is not None:
        return f"{len(quant.scales)} scales along axis {quant.axis}"
    return f"scale {quant.scale:.9g} zero point {quant.zero_point}"


@dataclass
class Allowance:
    """Allowance for constants that the import of a model creates, in bytes.

    Attributes:
        total: initial allowance, see `limits.MADE_BYTES`.
        left: remaining allowance.
    """

    total: int
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.total

    def take(self, size: int) -> None:
        """Deduct the bytes of a constant; see `check`."""
        self.check(size)
        self.left -= size

    def check(self, size: int) -> None:
        """Check the size of a constant before it is created.

        Raises:
            Unsupported: the remaining allowance is too small.
        """
        if size > self.left:
            raise Unsupported(
                f"constants that the import creates must not exceed {self.total} bytes in total; "
                f"{self.total - self.left} are used, and this one needs {size}"
            )


@dataclass
class ImportScope:
    """State that the operators of a subgraph share during the import.

    Attributes:
        tensors: all tensors of the subgraph.
        variables: variables of the subgraph.
        allowance: allowance of the whole model.
        is_initializer: whether the subgraph assigns initial values to variables.
        initialize: function that runs an initialiser subgraph.
        enter: function that imports a subgraph for given operands.
        values: value of each tensor, by tensor index.
        constants: elements of constant values.
        nodes: nodes emitted so far.
        unknown: tensors without a value, because of a problem reported before.
        large: float values that may exceed `float_limits.ORDINARY` although the inputs do not.
        subgraphs: bodies imported so far, by the names that nodes use.
        runs: value, bool [], that tells whether later operators change their state in this run; None: they
            do so in every run.
        open_cycles: number of circular buffers so far whose file leaves `cycles_max` open.
        signed: int8 equivalents of legacy uint8 values.
        complex: placeholders of complex values, each with its parts, see `complex_numbers`.
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
        """Return the type of a tensor in the file. An open dimension (-1) becomes 1.

        Raises:
            Unsupported: operators cannot compute values of this type.
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
        """Return the element type of a tensor in the file; see `declared_type`."""
        tensor = self.tensors[index]
        if tensor.dtype is None or tensor.dtype is DType.INT4:
            raise Unsupported(
                f"{tensor.name!r} has element type {tensor.type_name}, which is not supported",
                "activations must be int8, int16, uint8, int32 or float32",
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
        """Create a value for a tensor, of the type in the file. Complex values also get parts.

        Raises:
            Unsupported: the type is not supported.
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
        """Return a new placeholder for complex numbers with these parts."""
        value = Value(parts.name, parts.type.with_shape(parts.type.shape[:-1]))
        self.complex[value] = parts
        return value

    def in_graph(self, value: Value) -> Value:
        """Return the value in the graph: the parts for a complex placeholder, else the value itself."""
        return self.complex.get(value, value)

    def declare_in_place(self, index: int) -> None:
        """Create a state variable for a tensor that operators update in place (`is_variable`)."""
        value = Value(self.tensors[index].name, self.declared_type(index))
        self.values[index] = value
        self.variables.in_place[index] = Variable(value.name, value=value, current=value)
