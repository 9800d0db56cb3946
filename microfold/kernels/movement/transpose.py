"""Transposition of bytes in blocks: by words on cores that load them at any address, and by vectors (MVE)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.types import DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.broadcast import contiguous_strides, loop_records, merge_axes
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.movement.transpose import Transpose
from microfold.support.frozen import frozen

# Loops over matrices, at most.
_OUTER_LOOPS = 3


@frozen
class Planes:
    """A transposition as that of many matrices of bytes, whose rows are contiguous in the input.

    Attributes:
        loops: over the matrices: how many, step in the input, step in the output.
        rows, columns: of a matrix of the input; the output has their columns as rows.
        source_step: from one row to the next, in the input.
        target_step: from one column's output to the next one's.
    """

    loops: tuple[tuple[int, ...], ...]
    rows: int
    columns: int
    source_step: int
    target_step: int

    @property
    def count(self) -> int:
        return int(np.prod([loop[0] for loop in self.loops]))


def find_planes(x: TensorType, permutation: tuple[int, ...]) -> Planes | None:
    """None if runs of bytes stay together."""
    strides = contiguous_strides(x.shape)
    shape = [x.shape[axis] for axis in permutation]
    loops = merge_axes(shape, [strides[axis] for axis in permutation], contiguous_strides(tuple(shape)))
    *outer, inner = loops
    columns = next((loop for loop in outer if loop[1] == 1), None)
    if columns is None or inner[2] != 1:
        return None
    others = tuple(loop for loop in outer if loop is not columns)
    return Planes(others, inner[0], columns[0], inner[1], columns[2])


class _TransposeBlocks(Kernel):
    """Base of kernels that transpose matrices of bytes; `find_planes` finds these in a permutation.

    `loops` are three records over the matrices (size, step in the input, step in the output).
    """

    op = Transpose
    template: ClassVar[str]
    fields = declare(
        Field("loops", "over matrices; first: step in the input; second: step in the output"),
        Field("rows", "of a matrix of the input; its columns are the output's rows"),
        "columns",
        # Not narrower: of a struct so small GCC passes each member by itself, some of them on the stack.
        Field("source_step", "from one row of the input to the next", c_type="int32_t"),
        Field("target_step", "from one row of the output to the next", c_type="int32_t"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype.itemsize != 1 or x.dtype is DType.INT4:
            return f"it moves elements of one byte; they are {x.dtype.value}"
        if layer.node.epilogue:
            return "it fuses nothing"
        planes = self.find(layer)
        if planes is None:
            return "neighbouring bytes stay neighbours"
        if len(planes.loops) > _OUTER_LOOPS:
            return "it moves along too many axes at once"
        return self.unfit(planes)

    def unfit(self, planes: Planes) -> str | None:
        """Why the kernel cannot transpose such matrices."""
        raise NotImplementedError

    def spec(self, planes: Planes) -> tuple[tuple[str, SpecValue], ...]:
        """Compile-time choices of the function."""
        raise NotImplementedError

    def find(self, layer: LayerContext) -> Planes | None:
        assert isinstance(layer.node.op, Transpose)
        return find_planes(layer.node.operands[0].type, layer.node.op.permutation)

    def planes(self, layer: LayerContext) -> Planes:
        """Of a transposition that is supported."""
        planes = self.find(layer)
        assert planes is not None
        return planes

    def lower(self, layer: LayerContext) -> KernelCall:
        planes = self.planes(layer)
        return KernelCall(
            CFunction(self.template, self.name, self.spec(planes), self.fields),
            {
                "loops": Constant("loops", loop_records(planes.loops, _OUTER_LOOPS), record="mf_loop"),
                "rows": planes.rows,
                "columns": planes.columns,
                "source_step": planes.source_step,
                "target_step": planes.target_step,
            },
        )


@register
class TransposeWords(_TransposeBlocks):
    """Blocks of four by four bytes, in four words: masks and shifts put even and odd places together.

    The last blocks begin earlier, so that some bytes are written twice.
    """

    name = "transpose__c_words_4x4"
    features = frozenset({"thumb2"})
    template = "movement/transpose_words.c.j2"

    def unfit(self, planes: Planes) -> str | None:
        if min(planes.rows, planes.columns) < 4:
            return f"it needs matrices of 4 by 4 at least; they are {planes.rows} by {planes.columns}"
        return None

    def spec(self, planes: Planes) -> tuple[tuple[str, SpecValue], ...]:
        del planes
        return ()

    def terms(self, layer: LayerContext) -> Terms:
        planes = self.planes(layer)
        rows, columns = -(-planes.rows // 4), -(-planes.columns // 4)
        rest = planes.rows * planes.columns - (planes.rows // 4) * (planes.columns // 4) * 16
        block = planes.count * rows * columns
        return Terms(
            call=1, plane=planes.count, row=planes.count * rows, block=block, rest=planes.count * rest
        )


@register
class TransposeMve(_TransposeBlocks):
    """Eight bytes at a time: a gathering load and a store, or a load and a scattering store.

    Offsets are 16 bits, which `unfit` checks; the longer lines are those that vectors run along.
    """

    name = "transpose__mve_8"
    features = frozenset({"mve"})
    template = "movement/transpose_mve.c.j2"

    def unfit(self, planes: Planes) -> str | None:
        step = planes.target_step if _scatters(planes) else planes.source_step
        if 7 * step >= 1 << 16:
            return f"eight rows must lie within 65536 bytes; they are {step} bytes apart"
        return None

    def spec(self, planes: Planes) -> tuple[tuple[str, SpecValue], ...]:
        return (("scatter", _scatters(planes)),)

    def terms(self, layer: LayerContext) -> Terms:
        planes = self.planes(layer)
        lines, length = sorted((planes.rows, planes.columns))
        vectors = planes.count * lines * (length // 8)
        return Terms(call=1, plane=planes.count, line=planes.count * lines, vector=vectors)


def _scatters(planes: Planes) -> bool:
    """Whether the longer lines are rows of the input."""
    return planes.columns > planes.rows
