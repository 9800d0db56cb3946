"""What an importer function sees of its operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tflite

from microfold.frontend.reader import RawOperator, RawTensor
from microfold.ir.graph import Node, Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import Array, ElementType
from microfold.ops.clip import Clip

ImportFunction = Callable[["OperatorContext"], None]
IMPORTERS: dict[str, ImportFunction] = {}

_CLIPS = {
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

    def options(self, kind: str) -> Any | None:
        return self.raw.options(kind)

    def required_options(self, kind: str) -> Any:
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
            raise Unsupported(f"its {what} must be constant; it is computed by the model")
        return self._constants[value]

    def element(self, index: int = 0) -> ElementType:
        """Element type that the file declares for output `index`."""
        raw = self._tensors[self.raw.outputs[index]]
        if raw.dtype is None:
            raise Unsupported(f"output {raw.name!r} has type {raw.type_name}, which is not supported")
        return ElementType(raw.dtype, raw.quant)

    def declared_shape(self, index: int = 0) -> tuple[int, ...]:
        """Shape that the file declares for output `index`: possibly stale, a hint at most."""
        return self._tensors[self.raw.outputs[index]].shape

    def name(self, index: int = 0) -> str:
        return self._tensors[self.raw.outputs[index]].name

    def add_constant(self, value: Value, array: Array) -> Value:
        self._constants[value] = array
        return value

    def emit(self, op: Op, *inputs: Value | None, names: Sequence[str] | None = None) -> tuple[Value, ...]:
        """Append a node; its outputs are typed by the type rule."""
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        node = make_node(op, inputs, names if names is not None else [self.name()])
        self._nodes.append(node)
        return node.outputs

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
        if activation not in _CLIPS:
            raise Unsupported(f"fused activation {activation} is not supported")
        self.finish(*self.emit(Clip(*_CLIPS[activation]), value))
