"""Recognition of list writes: three operators that together replace one row of a tensor.

TensorFlow's converter has no operator for TensorListSetItem, which rolled recurrent layers, `tf.map_fn`,
`tf.scan` and `tf.TensorArray` use. It cuts the list in two and inserts the row between the parts:

    head = SLICE(list, [0, 0, …], [i, -1, …])
    tail = SLICE(list, [i + 1, 0, …], [-1, -1, …])
    CONCATENATION(head, row, tail)              # along axis 0

The lengths of the parts depend on `i`, so the file leaves their shapes open. The result has the shape of the
list. For each valid `i` it equals DYNAMIC_UPDATE_SLICE(list, row, [i, 0, …]).

Source of the pattern: ConvertTensorListSetItem in
tensorflow/compiler/mlir/lite/transforms/lower_static_tensor_list.cc.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import tflite
from msgspec import Struct
from msgspec.structs import replace

from microfold.frontend.raw import RawOperator, RawSubgraph
from microfold.ir.types import Array

# Operators that return their input's elements in another shape.
_RESHAPES = ("RESHAPE", "EXPAND_DIMS", "SQUEEZE")
_MAX_STEPS = 64  # operators between an index and the start of a slice; real files have up to three


class ListWrite(Struct, frozen=True):
    """Recognised list write.

    Attributes:
        operator: the CONCATENATION, with its inputs replaced by the list [n, …], the row [1, …], and the
            index of the row, one integer.
        parts: indices of the two SLICE operators, whose results no other operator reads.
    """

    operator: RawOperator
    parts: tuple[int, int]


class _Position(Struct, frozen=True):
    """Integer of the model in the form ``tensor + offset``; without a tensor, a constant."""

    tensor: int | None
    offset: int


def find_list_writes(subgraph: RawSubgraph) -> list[ListWrite]:
    """Return the list writes of a subgraph, in the order of its operators."""
    finder = _Finder(subgraph)
    found = (finder.list_write(operator) for operator in subgraph.operators)
    return [write for write in found if write is not None]


class _Finder:
    """Search for the pattern in one subgraph, from results to operands."""

    def __init__(self, subgraph: RawSubgraph):
        self.tensors = subgraph.tensors
        self.producers = {index: op for op in subgraph.operators for index in op.outputs}
        self.uses = Counter(index for op in subgraph.operators for index in op.inputs)
        self.uses.update(subgraph.outputs)

    def list_write(self, operator: RawOperator) -> ListWrite | None:
        """Return the list write whose result the operator computes, or None."""
        if operator.name != "CONCATENATION" or len(operator.inputs) != 3 or len(operator.outputs) != 1:
            return None
        first, row, last = operator.inputs
        head, tail = self.part(first), self.part(last)
        if head is None or tail is None or head.inputs[0] != tail.inputs[0]:
            return None
        whole = head.inputs[0]
        begin, size = self.vector(head.inputs[1]), self.vector(head.inputs[2])
        rest, remainder = self.vector(tail.inputs[1]), self.vector(tail.inputs[2])
        rank = len(self.tensors[whole].shape)
        if not rank or any(
            vector is None or len(vector) != rank for vector in (begin, size, rest, remainder)
        ):
            return None
        assert begin and size and rest and remainder
        zero, all_of_it = _Position(None, 0), _Position(None, -1)
        index = size[0]
        if (
            index.tensor is None
            or rest[0] != _Position(index.tensor, index.offset + 1)
            or begin != [zero] * rank
            or rest[1:] != [zero] * (rank - 1)
            or size[1:] != [all_of_it] * (rank - 1)
            or remainder != [all_of_it] * rank
        ):
            return None
        if not self.is_plain(operator, whole, row):
            return None
        inputs = (whole, row, self.first_of(head.inputs[2]))
        return ListWrite(replace(operator, inputs=inputs), (head.index, tail.index))

    def part(self, tensor: int) -> RawOperator | None:
        """Return the SLICE that computes a tensor with a single reader, or None."""
        operator = self.producers.get(tensor)
        if operator is None or operator.name != "SLICE" or len(operator.inputs) != 3:
            return None
        return operator if self.uses[tensor] == 1 and min(operator.inputs) >= 0 else None

    def is_plain(self, operator: RawOperator, whole: int, row: int) -> bool:
        """Return whether a concatenation is along axis 0 and copies the bits of its operands."""
        options = operator.options("ConcatenationOptions")
        if options is None or options.FusedActivationFunction() != tflite.ActivationFunctionType.NONE:
            return False
        first, *others = (self.tensors[index] for index in (whole, row, operator.outputs[0]))
        return options.Axis() in (0, -len(first.shape)) and all(
            (other.dtype, other.quant) == (first.dtype, first.quant) for other in others
        )

    def vector(self, tensor: int) -> list[_Position] | None:
        """Return the elements of a list of integers of the model, or None if they cannot be determined."""
        array = self.constant(tensor)
        if array is not None:
            return [_Position(None, int(n)) for n in array.reshape(-1)]
        operator = self.producers.get(tensor)
        if operator is not None and operator.name in ("CONCATENATION", "PACK"):
            elements = list(self.elements(operator))
            return None if None in elements else [element for element in elements if element is not None]
        position = self.position(tensor)
        return None if position is None else [position]

    def elements(self, operator: RawOperator) -> Iterator[_Position | None]:
        """Yield the elements of a list that an operator concatenates."""
        for tensor in operator.inputs:
            array = self.constant(tensor) if tensor >= 0 else None
            if array is None:
                yield self.position(tensor)
            else:
                yield from (_Position(None, int(n)) for n in array.reshape(-1))

    def position(self, tensor: int) -> _Position | None:
        """Return a tensor as the sum of a tensor and a constant; None if it has several elements."""
        offset = 0
        for _ in range(_MAX_STEPS):
            if tensor < 0 or not _is_single(self.tensors[tensor].shape):
                return None
            array = self.constant(tensor)
            if array is not None:
                return _Position(None, int(array.reshape(-1)[0]) + offset)
            operator = self.producers.get(tensor)
            if operator is None:
                break
            if operator.name in _RESHAPES and operator.inputs:
                tensor = operator.inputs[0]
                continue
            step = self.added(operator)
            if step is None:
                break
            tensor, addend = step
            offset += addend
        return _Position(tensor, offset)

    def added(self, operator: RawOperator) -> tuple[int, int] | None:
        """Return operand and constant of ``operand + constant``; None for anything else."""
        if operator.name not in ("ADD", "SUB") or len(operator.inputs) != 2:
            return None
        options = operator.options(f"{operator.name.capitalize()}Options")
        if options is not None and options.FusedActivationFunction() != tflite.ActivationFunctionType.NONE:
            return None
        x, y = operator.inputs
        constant = self.constant(y)
        if constant is not None and constant.size == 1:
            value = int(constant.reshape(-1)[0])
            return x, value if operator.name == "ADD" else -value
        constant = self.constant(x)
        if operator.name == "ADD" and constant is not None and constant.size == 1:
            return y, int(constant.reshape(-1)[0])
        return None

    def first_of(self, size: int) -> int:
        """Return the tensor with the first element of a list of sizes that `vector` has analysed."""
        operator = self.producers.get(size)
        return (
            operator.inputs[0]
            if operator is not None and operator.name in ("CONCATENATION", "PACK")
            else size
        )

    def constant(self, tensor: int) -> Array | None:
        """Return the elements of a constant of integers, or None for any other tensor."""
        array = self.tensors[tensor].data if tensor >= 0 else None
        return array if array is not None and array.dtype.name in ("int32", "int64") else None


def _is_single(shape: tuple[int, ...]) -> bool:
    return all(extent == 1 for extent in shape)
