"""Elementwise kernels of two operands: how broadcasting becomes a nest of loops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from microfold.ir.types import Array, DType, Shape
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms, length_prefix
from microfold.kernels.fields import Field, Fields, declare, describe
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range

# Loops around the innermost one that templates have: as many as images need, and as many as six axes need.
OUTER_LOOPS = 3
DEEP_OUTER_LOOPS = 5


def merge_axes(sizes: Sequence[int], *strides: Sequence[int]) -> list[tuple[int, ...]]:
    """The fewest loops that traverse `sizes` with each operand's strides, outermost first.

    Returns:
        Rows (size, stride, stride, …); at least one.
    """
    loops: list[tuple[int, ...]] = []
    for row in zip(sizes, *strides, strict=True):
        if row[0] == 1:
            continue
        # The outer loop's steps are whole runs of this one: both are one longer loop.
        if loops and all(
            outer == row[0] * inner for outer, inner in zip(loops[-1][1:], row[1:], strict=True)
        ):
            loops[-1] = (loops[-1][0] * row[0], *row[1:])
        else:
            loops.append(row)
    return loops or [(1, *(0 for _ in strides))]


def contiguous_strides(shape: Shape) -> list[int]:
    """Elements from one index to the next along each axis."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def broadcast_strides(shape: Shape, out: Shape) -> list[int]:
    """Strides of an operand of `shape` along the axes of `out`: 0 where it is repeated."""
    aligned = (1,) * (len(out) - len(shape)) + tuple(shape)
    return [0 if n == 1 else stride for n, stride in zip(aligned, contiguous_strides(aligned), strict=True)]


def loop_records(loops: Sequence[tuple[int, ...]], count: int) -> Array:
    """Loops as an int32 array of `count` records, trivial ones in front."""
    width = len(loops[0]) if loops else 3
    trivial = [(1, *(0,) * (width - 1))] * (count - len(loops))
    return np.array([*trivial, *loops], np.int32)


# Those that `BinaryKernel.call` adds.
LOOP_FIELDS = declare(Field("length", "of the innermost loop"), Field("loops", "the three around it"))


class BinaryKernel(Kernel):
    """Base of elementwise kernels of two operands of one element type; either may be constant.

    Class attributes:
        template: of the function; it renders the loops with ``elementwise/binary.j2``.
        dtype: of operands and result.
    """

    template: ClassVar[str]
    code = 150
    dtype: ClassVar[DType]

    def supports(self, layer: LayerContext) -> str | None:
        first = layer.node.operands[0].type
        if first.dtype is not self.dtype:
            return f"it needs {self.dtype.value} operands; they are {first.dtype.value}"
        if len(self.loops(layer)) > DEEP_OUTER_LOOPS + 1:
            return "its operands broadcast along too many axes in turn"
        return output_range.unsupported_epilogue(layer.node)

    def terms(self, layer: LayerContext) -> Terms:
        size = layer.node.outputs[0].type.size
        *outer, (length, *steps) = self.loops(layer)
        # An operand that stays the same is neither read nor widened.
        read = size * sum(step != 0 for step in steps)
        clamp = bool(layer.node.epilogue) and output_range.clamping(layer.node)[0]
        runs = size // length if outer else 0
        prefix = "nested_" * bool(outer) + length_prefix(
            length, layer.node.operands[0].type.dtype, layer.target.features
        )
        each = {f"{prefix}element": size, f"{prefix}read": read}
        return Terms(call=1, run=runs, clamped=size * clamp) + each

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        # Element by element in order: in place if the operand has an element for each of the result's.
        operand, out = layer.node.operands[index].type, layer.node.outputs[0].type
        return 0 if operand.size == out.size and operand.dtype.itemsize == out.dtype.itemsize else None

    def loops(self, layer: LayerContext) -> list[tuple[int, ...]]:
        """(size, first's step, second's step) of the loops, outermost first; steps in elements."""
        out = layer.node.outputs[0].type.shape
        return merge_axes(out, *(broadcast_strides(v.type.shape, out) for v in layer.node.operands[:2]))

    def call(
        self,
        layer: LayerContext,
        spec: tuple[tuple[str, SpecValue], ...],
        parameters: Mapping[str, Parameter],
        fields: Fields = (),
    ) -> KernelCall:
        """The call with the loops' fields and choices added.

        Args:
            fields: if not those of the kernel.
        """
        *outer, inner = self.loops(layer)
        fields = fields or self.fields
        deep = len(outer) > OUTER_LOOPS
        if deep:
            fields = describe(fields, loops="the five around it")
        nested = DEEP_OUTER_LOOPS if deep else bool(outer)
        spec = (*spec, ("nested", nested), ("first_step", inner[1]), ("second_step", inner[2]))
        traversal: dict[str, Parameter] = {"length": inner[0]}
        if outer:
            records = loop_records(outer, DEEP_OUTER_LOOPS if deep else OUTER_LOOPS)
            traversal["loops"] = Constant("loops", records, record="mf_loop")
        return KernelCall(CFunction(self.template, self.name, spec, fields), dict(parameters) | traversal)
