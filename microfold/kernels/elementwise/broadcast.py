"""Elementwise kernels of two operands: conversion of broadcasting to a loop nest."""

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

# Numbers of loops around the innermost one that the templates have: enough for images, and for six axes.
OUTER_LOOPS = 3
DEEP_OUTER_LOOPS = 5


def merge_axes(sizes: Sequence[int], *strides: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shortest loop nest that traverses `sizes` with each operand's strides, outermost loop first.

    Returns:
        Rows (size, stride, stride, …); at least one.
    """
    loops: list[tuple[int, ...]] = []
    for row in zip(sizes, *strides, strict=True):
        if row[0] == 1:
            continue
        # Merge two loops if the outer step equals the extent of the inner loop, for all operands.
        if loops and all(
            outer == row[0] * inner for outer, inner in zip(loops[-1][1:], row[1:], strict=True)
        ):
            loops[-1] = (loops[-1][0] * row[0], *row[1:])
        else:
            loops.append(row)
    return loops or [(1, *(0 for _ in strides))]


def contiguous_strides(shape: Shape) -> list[int]:
    """Return the elements from one index to the next along each axis of a contiguous tensor."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def broadcast_strides(shape: Shape, out: Shape) -> list[int]:
    """Return the strides of an operand of `shape` along the axes of `out`, with 0 along broadcast axes."""
    aligned = (1,) * (len(out) - len(shape)) + tuple(shape)
    return [0 if n == 1 else stride for n, stride in zip(aligned, contiguous_strides(aligned), strict=True)]


def loop_records(loops: Sequence[tuple[int, ...]], count: int) -> Array:
    """Return loops as an int32 array of `count` records, preceded by loops of size 1."""
    width = len(loops[0]) if loops else 3
    trivial = [(1, *(0,) * (width - 1))] * (count - len(loops))
    return np.array([*trivial, *loops], np.int32)


# Fields that `BinaryKernel.call` adds.
LOOP_FIELDS = declare(Field("length", "size of the innermost loop"), Field("loops", "the 3 outer loops"))


class BinaryKernel(Kernel):
    """Base class of elementwise kernels of two operands of one element type; either may be constant.

    Class attributes:
        template: path of the C template, which renders the loops with ``elementwise/binary.j2``.
        dtype: element type of operands and result.
    """

    template: ClassVar[str]
    code = 150
    dtype: ClassVar[DType]

    def supports(self, layer: LayerContext) -> str | None:
        first = layer.node.operands[0].type
        if first.dtype is not self.dtype:
            return f"it needs {self.dtype.value} operands; they are {first.dtype.value}"
        if len(self.loops(layer)) > DEEP_OUTER_LOOPS + 1:
            return "its operands broadcast along too many alternating axes"
        return output_range.unsupported_epilogue(layer.node)

    def terms(self, layer: LayerContext) -> Terms:
        size = layer.node.outputs[0].type.size
        *outer, (length, *steps) = self.loops(layer)
        # An operand with step 0 is neither read nor widened in the loop.
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
        # Elements are processed in order, so an operand with as many elements as the result can share its
        # memory.
        operand, out = layer.node.operands[index].type, layer.node.outputs[0].type
        return 0 if operand.size == out.size and operand.dtype.itemsize == out.dtype.itemsize else None

    def loops(self, layer: LayerContext) -> list[tuple[int, ...]]:
        """Return (size, first's step, second's step) of the loops, outermost first; steps in elements."""
        out = layer.node.outputs[0].type.shape
        return merge_axes(out, *(broadcast_strides(v.type.shape, out) for v in layer.node.operands[:2]))

    def call(
        self,
        layer: LayerContext,
        spec: tuple[tuple[str, SpecValue], ...],
        parameters: Mapping[str, Parameter],
        fields: Fields = (),
    ) -> KernelCall:
        """Return the call, with the fields and choices of the loops added.

        Args:
            fields: fields that replace the kernel's own.
        """
        *outer, inner = self.loops(layer)
        fields = fields or self.fields
        deep = len(outer) > OUTER_LOOPS
        if deep:
            fields = describe(fields, loops="the 5 outer loops")
        nested = DEEP_OUTER_LOOPS if deep else bool(outer)
        spec = (*spec, ("nested", nested), ("first_step", inner[1]), ("second_step", inner[2]))
        traversal: dict[str, Parameter] = {"length": inner[0]}
        if outer:
            records = loop_records(outer, DEEP_OUTER_LOOPS if deep else OUTER_LOOPS)
            traversal["loops"] = Constant("loops", records, record="mf_loop")
        return KernelCall(CFunction(self.template, self.name, spec, fields), dict(parameters) | traversal)
