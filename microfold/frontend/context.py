"""What an importer function sees of its operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
import tflite

from microfold.frontend.reader import MAX_ELEMENTS, MAX_RANK, Options, RawOperator, RawTensor
from microfold.ir.graph import Node, Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, ElementType, Quant, Tensor, TensorType
from microfold.ops.clip import Clip

ImportFunction = Callable[["OperatorContext"], None]
IMPORTERS: dict[str, ImportFunction] = {}

MAX_LIST = 4096  # elements of an attribute list or of a shape computation

CLIPS = {
    tflite.ActivationFunctionType.RELU: (0.0, math.inf),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
}


def imports(*names: str) -> Callable[[ImportFunction], ImportFunction]:
    """Decorator: the function imports the TFLite operators of these names."""

    def decorate(function: ImportFunction) -> ImportFunction:
        for name in names:
            IMPORTERS[name] = function
        return function

    return decorate


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


class OperatorContext:
    """One operator while it is imported.

    Args:
        raw: the operator as the file has it.
        tensors: all tensors of the subgraph.
        values: tensor index to the value that stands for it; importers add to it through `finish`.
        constants: arrays of constant values.
        nodes: where emitted nodes go.
    """

    def __init__(
        self,
        raw: RawOperator,
        tensors: Sequence[RawTensor],
        values: dict[int, Value],
        constants: dict[Value, Array],
        nodes: list[Node],
    ):
        self.raw = raw
        self._tensors = tensors
        self._values = values
        self._constants = constants
        self._nodes = nodes

    def options(self, kind: str) -> Options | None:
        """The builtin options as the file has them; None if it has none."""
        return self.raw.options(kind)

    def required_options(self, kind: str) -> Options:
        """The builtin options of that class.

        Raises:
            Unsupported: the file has none.
        """
        options = self.raw.options(kind)
        if options is None:
            raise Unsupported(f"its {kind} are missing", "export the model again")
        return options

    @property
    def input_count(self) -> int:
        return len(self.raw.inputs)

    def optional(self, index: int) -> Value | None:
        """Input `index`, or None if it is absent."""
        if index >= len(self.raw.inputs) or self.raw.inputs[index] < 0:
            return None
        return self._values[self.raw.inputs[index]]

    def input(self, index: int) -> Value:
        """Input `index`, which must be there."""
        value = self.optional(index)
        if value is None:
            raise Unsupported(f"input {index} is missing")
        return value

    def inputs(self) -> list[Value]:
        return [self.input(i) for i in range(self.input_count)]

    def constant(self, index: int, what: str) -> Array:
        """The array behind input `index`, which must be constant."""
        value = self.input(index)
        if value not in self._constants:
            raise Unsupported(
                f"its {what} must be constant; it is computed by the model",
                "export the model with static shapes and constant operator attributes",
            )
        return self._constants[value]

    def integers(self, index: int, what: str) -> tuple[int, ...]:
        """The elements of constant input `index`, a list of integers of any rank."""
        array = self.constant(index, what)
        if array.dtype.kind not in "iu" or array.size > MAX_LIST:
            raise Unsupported(
                f"its {what} must be at most {MAX_LIST} integers; it is {array.dtype}{list(array.shape)}"
            )
        return tuple(int(n) for n in array.reshape(-1))

    def shape(self, index: int, what: str) -> tuple[int, ...]:
        """The elements of constant input `index`, a shape of sensible size."""
        shape = self.integers(index, what)
        if len(shape) > MAX_RANK or min(shape, default=0) < 0 or math.prod(shape) > MAX_ELEMENTS:
            raise Unsupported(f"its {what} must be a shape of at most {MAX_RANK} axes; it is {list(shape)}")
        return shape

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front; negative ones count from the back."""
        if not -rank <= axis < rank:
            raise Unsupported(f"axis {axis} must be in [{-rank}, {rank})")
        return axis % rank

    def element(self, index: int = 0) -> ElementType:
        """Element type that the file declares for output `index`."""
        raw = self._tensors[self.raw.outputs[index]]
        if raw.dtype is None:
            raise Unsupported(f"output {raw.name!r} has type {raw.type_name}, which is not supported")
        return ElementType(raw.dtype, raw.quant)

    def declared_shape(self, index: int = 0) -> tuple[int, ...]:
        """Shape that the file declares for output `index`: possibly stale, a hint at most."""
        return self._tensors[self.raw.outputs[index]].shape

    def require_same_quantization(self, *values: Value) -> None:
        """For operators that move integers without rescaling them.

        Raises:
            Unsupported: the output is quantised otherwise than the values.
        """
        out = self._tensors[self.raw.outputs[0]].quant
        for value in values:
            given = value.type.quant
            if value.type.dtype.is_float or given is None or out is None:
                continue
            if (given.scales, given.zero_points) != (out.scales, out.zero_points):
                raise Unsupported(
                    f"input and output must be quantised alike; they are {describe(given)} and {describe(out)}",
                    "quantise the model with a converter that shares the scale across this operator",
                )

    def name(self, index: int = 0) -> str:
        return self._tensors[self.raw.outputs[index]].name

    def add_constant(self, array: Array, name: str, element: ElementType | None = None) -> Value:
        """A new constant; its element type is the array's own if none is given."""
        element = element or ElementType(DType(array.dtype.name))
        value = Value(name, TensorType(element.dtype, array.shape, element.quant))
        self._constants[value] = array
        return value

    def emit(self, op: Op, *inputs: Value | None, names: Sequence[str] | None = None) -> tuple[Value, ...]:
        """Append a node; its outputs are typed by the type rule.

        Small integer results of constants are computed at once: shapes hang on them.
        """
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        node = make_node(op, inputs, names if names is not None else [self.name()])
        if self._is_shape_arithmetic(node):
            tensors = {v: Tensor(v.type, self._constants[v]) for v in node.operands}
            for value, result in zip(node.outputs, node.evaluate(tensors), strict=True):
                self._constants[value] = result.data
        else:
            self._nodes.append(node)
        return node.outputs

    def _is_shape_arithmetic(self, node: Node) -> bool:
        return all(v in self._constants for v in node.operands) and all(
            v.type.dtype in (DType.INT32, DType.INT64, DType.BOOL)
            and v.type.quant is None
            and v.type.size <= MAX_LIST
            for v in (*node.outputs, *node.operands)
        )

    def finish(self, *values: Value) -> None:
        """These values stand for the operator's outputs, in order."""
        for index, value in zip(self.raw.outputs, values, strict=False):
            self._values[index] = value

    def finish_activated(self, value: Value, activation: int) -> None:
        """Apply a fused activation function and finish.

        Clamping after saturation to the type's range is the same as clamping once, so that the activation
        can be an operator of its own.
        """
        if activation == tflite.ActivationFunctionType.NONE:
            self.finish(value)
            return
        if activation not in CLIPS:
            raise Unsupported(f"fused activation {activation} is not supported")
        self.finish(*self.emit(Clip(*CLIPS[activation]), value))
