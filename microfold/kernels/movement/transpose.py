"""Transposition of bytes in blocks: by words on cores with unaligned loads, and by vectors with Helium."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec import Struct

from microfold.ir.types import DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.broadcast import contiguous_strides, loop_records, merge_axes
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.movement.transpose import Transpose

# Maximum number of loops over matrices.
_OUTER_LOOPS = 3


class Planes(Struct, frozen=True):
    """Transposition as a set of transposed byte matrices, whose rows are contiguous in the input.

    Attributes:
        loops: loops over the matrices: (size, step in the input, step in the output).
        rows, columns: size of a matrix of the input; its columns become rows of the output.
        source_step: step from one row of the input to the next, in bytes.
        target_step: step from one row of the output to the next, in bytes.
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
    """Return the matrices of a permutation; None if runs of bytes stay contiguous."""
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
    """Base class of kernels that transpose matrices of bytes, which `find_planes` finds in a permutation.

    The constant `loops` has three records over the matrices (size, step in the input, step in the output).
    """

    op = Transpose
    template: ClassVar[str]
    fields = declare(
        Field("loops", "loops over matrices; first: step in the input; second: step in the output"),
        Field("rows", "rows of an input matrix; its columns are the output's rows"),
        "columns",
        # Both steps stay 32 bits wide: GCC passes the members of a very small struct separately, some on the
        # stack.
        Field("source_step", "step from one row of the input to the next", c_type="int32_t"),
        Field("target_step", "step from one row of the output to the next", c_type="int32_t"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype.itemsize != 1 or x.dtype is DType.INT4:
            return f"it needs elements of one byte; got {x.dtype.value}"
        if layer.node.epilogue:
            return "it does not support an epilogue"
        planes = self.find(layer)
        if planes is None:
            return "runs of bytes stay contiguous"
        if len(planes.loops) > _OUTER_LOOPS:
            return "it needs too many nested loops"
        return self.unfit(planes)

    def unfit(self, planes: Planes) -> str | None:
        """Return the reason if the kernel cannot transpose matrices of this size; else None."""
        raise NotImplementedError

    def spec(self, planes: Planes) -> tuple[tuple[str, SpecValue], ...]:
        """Return the compile-time choices of the function."""
        raise NotImplementedError

    def find(self, layer: LayerContext) -> Planes | None:
        assert isinstance(layer.node.op, Transpose)
        return find_planes(layer.node.operands[0].type, layer.node.op.permutation)

    def planes(self, layer: LayerContext) -> Planes:
        """Return the matrices of a transposition that is supported."""
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
    """Transposition of blocks of four by four bytes in four words, by masks and shifts.

    The last blocks start earlier if the size is no multiple of four, so that some bytes are written twice.
    """

    name = "transpose__c_words_4x4"
    features = frozenset({"thumb2"})
    template = "movement/transpose_words.c.j2"

    def unfit(self, planes: Planes) -> str | None:
        if min(planes.rows, planes.columns) < 4:
            return f"it needs matrices of at least 4 by 4; got {planes.rows} by {planes.columns}"
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
    """Transposition of eight bytes at a time: a gather load and a store, or a load and a scatter store.

    Offsets have 16 bits, which `unfit` checks. Vectors run along the longer side of a matrix.
    """

    name = "transpose__mve_8"
    features = frozenset({"mve"})
    template = "movement/transpose_mve.c.j2"

    def unfit(self, planes: Planes) -> str | None:
        step = planes.target_step if _scatters(planes) else planes.source_step
        if 7 * step >= 1 << 16:
            return f"eight rows must be within 65536 bytes; they are {step} bytes apart"
        return None

    def spec(self, planes: Planes) -> tuple[tuple[str, SpecValue], ...]:
        return (("scatter", _scatters(planes)),)

    def terms(self, layer: LayerContext) -> Terms:
        planes = self.planes(layer)
        lines, length = sorted((planes.rows, planes.columns))
        vectors = planes.count * lines * (length // 8)
        return Terms(call=1, plane=planes.count, line=planes.count * lines, vector=vectors)


def _scatters(planes: Planes) -> bool:
    """Return whether vectors run along rows of the input, because rows are longer than columns."""
    return planes.columns > planes.rows
