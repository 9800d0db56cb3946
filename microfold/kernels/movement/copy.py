"""Kernels that move elements unchanged: copy, pad, slice, transpose, concatenate, resize, gather."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.broadcast import (
    broadcast_strides,
    contiguous_strides,
    loop_records,
    merge_axes,
)
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.movement.bitcast import Bitcast
from microfold.ops.movement.broadcast_to import BroadcastTo
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.copy import Copy
from microfold.ops.movement.gather import Gather
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose

# Number of loops around the innermost one in the template.
OUTER_LOOPS = 4
# C types as which elements are moved, by element size in bytes.
_UNSIGNED = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}


class Box(Struct, frozen=True):
    """Elements to move: number along each axis, steps in source and target, first elements; in elements."""

    sizes: Sequence[int]
    source_strides: Sequence[int]
    target_strides: Sequence[int]
    source_start: int = 0
    target_start: int = 0

    @property
    def loops(self) -> list[tuple[int, ...]]:
        """Shortest loop nest, outermost loop first: (size, source step, target step)."""
        return merge_axes(self.sizes, self.source_strides, self.target_strides)


def _unsupported(layer: LayerContext) -> str | None:
    x = layer.node.operands[0].type
    if x.dtype is DType.INT4:
        return "int4 values are not byte-addressable"
    return "it does not support an epilogue" if layer.node.epilogue else None


def copy_helper(layer: LayerContext) -> str:
    """Return the C function that copies bytes: the fastest helper for the core, or memcpy."""
    if layer.target.has("mve"):
        return "mf_copy"
    return "mf_copy_bytes" if layer.target.has("thumb1") or layer.target.has("thumb2") else "memcpy"


def copy_terms(count: int, size: int) -> Terms:
    """Count the code parts of `count` copies of `size` bytes: blocks of 16 bytes, words, single bytes."""
    words = size % 16 // 4
    each = Terms(copy=1, copied_byte=size, copied_block=size // 16, copied_word=words, copied_rest=size % 4)
    return count * (each + Terms(copied_words=words > 0))


class _Movement(Kernel):
    """Base class of kernels that move one box of elements, with the shortest loop nest that traverses it.

    Runs that are contiguous in both input and output are copied as bytes. Other elements are copied one by
    one, as unsigned integers of their size. Bits never change. The constant `loops` has four records (size,
    step in the input, step in the output), preceded by loops of size 1.
    """

    def box(self, layer: LayerContext) -> Box:
        raise NotImplementedError

    def fill(self, layer: LayerContext) -> Parameter | None:
        """Return the value of output elements outside of the box; None if the box covers the output."""
        return None

    def supports(self, layer: LayerContext) -> str | None:
        if len(self.box(layer).loops) > OUTER_LOOPS + 1:
            return "it needs too many nested loops"
        return _unsupported(layer)

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        # A graph output that was folded to a constant is a copy of the constant.
        return (0,)

    def terms(self, layer: LayerContext) -> Terms:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        box = self.box(layer)
        inner = box.loops[-1]
        count = int(np.prod(box.sizes)) // inner[0]
        filled = out.size * (self.fill(layer) is not None)
        found = Terms({f"filled_{x.dtype.itemsize}": filled})
        if inner[1:] == (1, 1):
            return found + Terms(call=1, run=count) + copy_terms(count, inner[0] * x.dtype.itemsize)
        return found + Terms(stepped_call=1, stepped_run=count, element=count * inner[0])

    def lower(self, layer: LayerContext) -> KernelCall:
        out = layer.node.outputs[0].type
        size = out.dtype.itemsize
        box = self.box(layer)
        *outer, inner = box.loops
        in_runs, dense = inner[1:] == (1, 1), inner[2] == 1
        # Runs are moved as bytes, so that all element types share one function.
        unit = size if in_runs else 1
        scaled = [(n, source * unit, target * unit) for n, source, target in outer]
        fill = self.fill(layer)
        element = "uint8_t" if in_runs and fill is None else _UNSIGNED[size]
        spec: tuple[tuple[str, SpecValue], ...] = (
            ("type", element),
            ("runs", in_runs),
            ("copy", copy_helper(layer) if in_runs else ""),
            ("dense", dense),
            ("fill", fill is not None),
        )
        parameters: dict[str, Parameter] = {
            "loops": Constant("loops", loop_records(scaled, OUTER_LOOPS), record="mf_loop"),
            "source_start": box.source_start * unit,
            "target_start": box.target_start * unit,
            "length": inner[0] * unit,
        }
        if not in_runs:
            parameters["source_step"] = inner[1]
            if not dense:
                parameters["target_step"] = inner[2]
        if fill is not None:
            parameters |= {"total": out.size, "fill": fill}
        fields = declare(
            Field("loops", "first: step in the input; second: step in the output"),
            "source_start",
            "target_start",
            Field("length", "bytes of a run" if in_runs else "size of the innermost loop"),
            "source_step",
            "target_step",
            "total",
            Field("fill", c_type=element),
        )
        return KernelCall(CFunction("movement/copy.c.j2", "move__c", spec, fields), parameters)


def _bits(value: float, dtype: DType) -> int:
    """Return an element's representation as an unsigned integer."""
    return int(np.array(value, dtype.numpy).view(f"u{dtype.itemsize}"))


@register
class CopyMovement(_Movement):
    """Copy of the whole tensor in one run."""

    name = "copy__c"
    op = Copy

    def box(self, layer: LayerContext) -> Box:
        shape = layer.node.outputs[0].type.shape
        strides = contiguous_strides(shape)
        return Box(shape, strides, strides)


@register
class BitcastMovement(_Movement):
    """Copy of the bytes of a tensor as elements of another type, in one run."""

    name = "bitcast__c"
    op = Bitcast

    def box(self, layer: LayerContext) -> Box:
        shape = layer.node.outputs[0].type.shape
        strides = contiguous_strides(shape)
        return Box(shape, strides, strides)


@register
class PadMovement(_Movement):
    """Copy of the whole input into an output that was first filled with the padding's bits."""

    name = "pad__c"
    op = Pad

    def box(self, layer: LayerContext) -> Box:
        assert isinstance(layer.node.op, Pad)
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        strides = contiguous_strides(out.shape)
        start = sum(
            before * stride for (before, _), stride in zip(layer.node.op.padding, strides, strict=True)
        )
        return Box(x.shape, contiguous_strides(x.shape), strides, target_start=start)

    def fill(self, layer: LayerContext) -> Parameter | None:
        assert isinstance(layer.node.op, Pad)
        return _bits(layer.node.op.fill, layer.node.outputs[0].type.dtype)


@register
class StridedSliceMovement(_Movement):
    """Copy of every `strides`-th element from `begin` on, along each axis of the input."""

    name = "strided_slice__c"
    op = StridedSlice

    def box(self, layer: LayerContext) -> Box:
        op = layer.node.op
        assert isinstance(op, StridedSlice)
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        strides = contiguous_strides(x.shape)
        start = sum(begin * stride for begin, stride in zip(op.begin, strides, strict=True))
        steps = [stride * step for stride, step in zip(strides, op.strides, strict=True)]
        return Box(out.shape, steps, contiguous_strides(out.shape), source_start=start)


@register
class TransposeMovement(_Movement):
    """Transposition in the order of the output, with permuted steps in the input."""

    name = "transpose__c"
    op = Transpose

    def box(self, layer: LayerContext) -> Box:
        assert isinstance(layer.node.op, Transpose)
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        strides = contiguous_strides(x.shape)
        source = [strides[axis] for axis in layer.node.op.permutation]
        return Box(out.shape, source, contiguous_strides(out.shape))


@register
class BroadcastToMovement(_Movement):
    """Broadcast in the order of the output, with steps of 0 along repeated axes of the input."""

    name = "broadcast_to__c"
    op = BroadcastTo

    def box(self, layer: LayerContext) -> Box:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        return Box(out.shape, broadcast_strides(x.shape, out.shape), contiguous_strides(out.shape))


@register
class ConcatenatePortable(Kernel):
    """Concatenation that copies a run of each input in turn, as bytes; inputs may be constant.

    The kernel has no other constants. A run contains the elements along the axis and all axes after it.
    """

    name = "concatenate__c"
    op = Concatenate

    def supports(self, layer: LayerContext) -> str | None:
        return _unsupported(layer)

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return tuple(range(len(layer.node.inputs)))

    def terms(self, layer: LayerContext) -> Terms:
        outer, found = self._outer(layer), Terms(call=1)
        for value in layer.node.operands:
            found += copy_terms(outer, value.type.nbytes // outer)
        return found

    def _outer(self, layer: LayerContext) -> int:
        assert isinstance(layer.node.op, Concatenate)
        return int(np.prod(layer.node.outputs[0].type.shape[: layer.node.op.axis]))

    def lower(self, layer: LayerContext) -> KernelCall:
        outer = self._outer(layer)
        parameters: dict[str, Parameter] = {"count": outer}
        for index, value in enumerate(layer.node.operands):
            parameters[f"run{index}"] = value.type.nbytes // outer
        spec = (("inputs", len(layer.node.inputs)), ("copy", copy_helper(layer)))
        fields = declare("count", *(Field(f"run{index}", "bytes") for index in range(len(layer.node.inputs))))
        return KernelCall(CFunction("movement/concatenate.c.j2", "concatenate__c", spec, fields), parameters)


@register
class ResizeNearestNeighborPortable(Kernel):
    """Nearest-neighbour resizing, pixel by pixel, as bytes; tables have the source rows and columns.

    The constants `rows` and `columns` are offsets in bytes, int32, computed by the operator's `sources`. With
    an indirection buffer, `rows` contains row numbers.
    """

    name = "resize_nearest_neighbor__c"
    op = ResizeNearestNeighbor
    fields = declare(
        Field("rows", "offset of each row's source in an image, in bytes"),
        Field("columns", "offset of each column's source in a row, in bytes"),
        "batch",
        "input_size",
        "output_height",
        "output_width",
        Field("pixel", "bytes of a pixel"),
    )
    pitch_fields = frozenset({"input_size"})

    def supports(self, layer: LayerContext) -> str | None:
        return _unsupported(layer)

    def terms(self, layer: LayerContext) -> Terms:
        out = layer.node.outputs[0].type
        pixels = out.size // out.shape[3]
        return Terms(call=1, pixel=pixels) + copy_terms(pixels, out.nbytes // max(pixels, 1))

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        assert isinstance(layer.node.op, ResizeNearestNeighbor)
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        rows, columns = layer.node.op.sources(x)
        pixel = x.shape[3] * x.dtype.itemsize
        pitch = 1 if layer.indirection_buffer else x.shape[2] * pixel
        parameters: dict[str, Parameter] = {
            "rows": Constant("rows", np.array(rows, np.int32) * pitch),
            "columns": Constant("columns", np.array(columns, np.int32) * pixel),
            "batch": out.shape[0],
            "input_size": x.nbytes // x.shape[0],
            "output_height": out.shape[1],
            "output_width": out.shape[2],
            "pixel": pixel,
        }
        fields = describe(self.fields, rows="source of each row") if layer.indirection_buffer else self.fields
        function = CFunction("movement/resize_nearest_neighbor.c.j2", self.name, (), fields)
        return KernelCall(function, parameters)


@register
class GatherPortable(Kernel):
    """Gather of slices by constant or computed indices; an index out of range selects the nearest slice."""

    name = "gather__c"
    op = Gather
    fields = declare(
        "outer",
        Field("slices", "slices of the input, along the axis"),
        Field("count", "number of indices"),
        Field("size", "bytes of a slice"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        return _unsupported(layer)

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1)

    def terms(self, layer: LayerContext) -> Terms:
        assert isinstance(layer.node.op, Gather)
        x, indices = (v.type for v in layer.node.operands[:2])
        axis = layer.node.op.axis
        outer = int(np.prod(x.shape[:axis]))
        size = int(np.prod(x.shape[axis + 1 :])) * x.dtype.itemsize
        return Terms(call=1, row=outer) + copy_terms(outer * indices.size, size)

    def lower(self, layer: LayerContext) -> KernelCall:
        assert isinstance(layer.node.op, Gather)
        x, indices = (v.type for v in layer.node.operands[:2])
        axis = layer.node.op.axis
        parameters: dict[str, Parameter] = {
            "outer": int(np.prod(x.shape[:axis])),
            "slices": x.shape[axis],
            "count": indices.size,
            "size": int(np.prod(x.shape[axis + 1 :])) * x.dtype.itemsize,
        }
        spec = (("index", f"{indices.dtype.value}_t"),)
        return KernelCall(CFunction("movement/gather.c.j2", self.name, spec, self.fields), parameters)
