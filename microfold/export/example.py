"""Example of a package: a fixed input, and the outputs of the reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from microfold.codegen.literals import array_lines, float_literal, literal_headers
from microfold.codegen.parts import ModelPort
from microfold.ir.interpret import Interpreter
from microfold.ir.types import Array, DType
from microfold.program import Program
from microfold.verification.verify import FLOAT_TOLERANCE, HALF_TOLERANCE, input_sets

# Index of the first random input set. The sets before it are all-minimum, all-maximum and zero.
_INPUT_SET = 3


class ExampleTensor(Struct, frozen=True):
    """An input of the example, or a reference output.

    Attributes:
        port: input or output of the model.
        data: elements.
        tolerance: allowed difference of an element, as a C literal; empty if elements must be equal.
        checked: whether outputs are compared; the bits of float16 numbers are not.
    """

    port: ModelPort
    data: Array
    tolerance: str = ""
    checked: bool = True

    @property
    def rows(self) -> Iterable[str]:
        """Lines of the initialiser, between the braces."""
        return array_lines(self.data)


class Example(Struct, frozen=True):
    """One call of the model on a freshly initialised context."""

    inputs: tuple[ExampleTensor, ...]
    outputs: tuple[ExampleTensor, ...]

    @property
    def headers(self) -> Sequence[str]:
        """Standard headers for the elements."""
        arrays = [tensor.data for tensor in (*self.inputs, *self.outputs)]
        floats = [array for array in arrays if array.dtype == np.float32]
        return sorted(literal_headers(extreme for array in floats for extreme in (array.min(), array.max())))


def make_example(program: Program) -> Example:
    """Return the random input that measurements also use, and its reference outputs.

    The reference is the imported model; with relaxed numerics, it is the compiled graph.

    Raises:
        NoReferenceError: a part of the model has no reference, e.g. an NPU command stream.
    """
    arrays = input_sets([buffer.type for buffer in program.inputs], _INPUT_SET + 1)[_INPUT_SET]
    graph = program.graph if program.relaxations else program.source
    results = Interpreter(graph).run(*arrays)
    return Example(
        tuple(
            ExampleTensor(ModelPort("input", index, buffer), array)
            for index, (buffer, array) in enumerate(zip(program.inputs, arrays, strict=True))
        ),
        tuple(
            ExampleTensor(
                ModelPort("output", index, buffer),
                array,
                _tolerance(program, array),
                buffer.type.dtype is not DType.FLOAT16,
            )
            for index, (buffer, array) in enumerate(zip(program.outputs, results, strict=True))
        ),
    )


def _tolerance(program: Program, expected: Array) -> str:
    """Return the tolerance of `verify`; the errors of layers that read float16 add up."""
    if expected.dtype != np.float32:
        return ""
    halves = sum(any(v.type.dtype is DType.FLOAT16 for v in layer.node.operands) for layer in program.calls)
    largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    return float_literal(max(HALF_TOLERANCE * halves, FLOAT_TOLERANCE) * largest)
