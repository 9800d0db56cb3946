"""Slices at computed positions: gathered, added, or replaced, in portable C.

Positions are clamped or skipped, so that no index leads out of a tensor.
"""

from __future__ import annotations

import math

import numpy as np

from microfold.ir.types import DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.elementwise.broadcast import contiguous_strides, loop_records, merge_axes
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.movement.copy import OUTER_LOOPS, copy_terms
from microfold.ops.movement.dynamic_slice import DynamicSlice
from microfold.ops.movement.dynamic_update_slice import DynamicUpdateSlice
from microfold.ops.movement.gather_nd import GatherNd
from microfold.ops.movement.scatter_nd import ScatterNd

# C types of positions, by the type of the indices.
_POSITIONS = {DType.INT16: "int32_t", DType.INT32: "int32_t", DType.INT64: "int64_t"}

_AXES = declare(
    Field("extents", "sizes of the indexed axes"),
    Field("steps", "step from one index to the next"),
    Field("depth", "indices per position"),
    Field("count", "number of positions"),
)


def _axes(x: TensorType, indices: TensorType, unit: int) -> dict[str, Parameter]:
    """Return the values of `_AXES`.

    Args:
        unit: size of an element in the unit of `steps`.
    """
    depth = indices.shape[-1]
    steps = np.array(contiguous_strides(x.shape)[:depth], np.int32) * unit
    return {
        "extents": Constant("extents", np.array(x.shape[:depth], np.int32)),
        "steps": Constant("steps", steps),
        "depth": depth,
        "count": indices.size // depth,
    }


@register
class GatherNdPortable(Kernel):
    """Gather of slices as bytes, position by position; an index out of range selects the nearest slice.

    The constants `extents` and `steps`, in bytes, describe the indexed axes.
    """

    name = "gather_nd__c"
    op = GatherNd
    fields = (*_AXES, Field("size", "bytes of a slice"))

    def supports(self, layer: LayerContext) -> str | None:
        if layer.node.operands[0].type.dtype is DType.INT4:
            return "int4 values are not byte-addressable"
        return "it does not support an epilogue" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1)

    def terms(self, layer: LayerContext) -> Terms:
        out, indices = layer.node.outputs[0].type, layer.node.operands[1].type
        runs = indices.size // indices.shape[-1]
        return Terms(call=1, run=runs, index=indices.size, byte=out.nbytes)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, indices = (v.type for v in layer.node.operands[:2])
        slice_ = math.prod(x.shape[indices.shape[-1] :]) * x.dtype.itemsize
        spec = (("index", C_TYPES[indices.dtype]), ("position", _POSITIONS[indices.dtype]))
        return KernelCall(
            CFunction("movement/gather_nd.c.j2", self.name, spec, self.fields),
            _axes(x, indices, x.dtype.itemsize) | {"size": slice_},
        )


@register
class ScatterNdPortable(Kernel):
    """Scatter into zeros, to which slices are added element by element, in order; integers wrap around.

    The constants `extents` and `steps`, in elements, describe the indexed axes. A slice with a position out
    of range is skipped.
    """

    name = "scatter_nd__c"
    op = ScatterNd
    fields = (*_AXES, Field("size", "elements of a slice"), Field("total", "elements of the output"))

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1)

    def terms(self, layer: LayerContext) -> Terms:
        indices, updates = (v.type for v in layer.node.operands)
        runs = indices.size // indices.shape[-1]
        nbytes = layer.node.output.type.nbytes
        return Terms(call=1, cleared=nbytes, run=runs, index=indices.size, update=updates.size)

    def lower(self, layer: LayerContext) -> KernelCall:
        indices, out = layer.node.operands[0].type, layer.node.output.type
        parameters: dict[str, Parameter] = {
            "size": math.prod(out.shape[indices.shape[-1] :]),
            "total": out.size,
        }
        element = C_TYPES[out.dtype]
        wide = "uint64_t" if out.dtype is DType.INT64 else "uint32_t"
        sums = {DType.BOOL: "a | b", DType.FLOAT32: "a + b"}
        spec = (
            ("index", C_TYPES[indices.dtype]),
            ("position", _POSITIONS[indices.dtype]),
            ("type", element),
            ("sum", sums.get(out.dtype, f"({element})(({wide})a + ({wide})b)")),
        )
        return KernelCall(
            CFunction("movement/scatter_nd.c.j2", self.name, spec, self.fields),
            _axes(out, indices, 1) | parameters,
        )


_SLICES = declare(
    Field("limits", "largest start along each axis"),
    Field("steps", "bytes from one index to the next"),
    Field("loops", "first: step in the source, in bytes; second: step in the target"),
    Field("axes", "axes of the tensor"),
    Field("length", "bytes of a run"),
)


class _Slice(Kernel):
    """Base class of kernels that copy a slice of a tensor as runs of bytes, at a start that is clamped.

    For each axis, the constant `limits` has the largest start, and `steps` the bytes from one index to the
    next. The constant `loops` has four records (size, step in the source, step in the target), preceded by
    loops of size 1.
    """

    def types(self, layer: LayerContext) -> tuple[TensorType, TensorType, TensorType]:
        """Return the types of the tensor, of its slice, and of the start."""
        raise NotImplementedError

    def loops(self, layer: LayerContext) -> list[tuple[int, ...]]:
        """Return (size, source step, target step) of the slice's loops; the last loop is a run."""
        raise NotImplementedError

    def supports(self, layer: LayerContext) -> str | None:
        if layer.node.operands[0].type.dtype is DType.INT4:
            return "int4 values are not byte-addressable"
        if len(self.loops(layer)) > OUTER_LOOPS + 1:
            return "the slice needs too many nested loops"
        return "it does not support an epilogue" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return tuple(range(len(layer.node.operands)))

    def terms(self, layer: LayerContext) -> Terms:
        x, part, _ = self.types(layer)
        run = self.loops(layer)[-1][0]
        count = part.size // run
        return Terms(call=1, run=count) + copy_terms(count, run * x.dtype.itemsize)

    def parameters(self, layer: LayerContext) -> dict[str, Parameter]:
        x, part, _ = self.types(layer)
        unit = x.dtype.itemsize
        *outer, (length, _, _) = self.loops(layer)
        records = [(n, source * unit, target * unit) for n, source, target in outer]
        return {
            "limits": Constant("limits", np.array(x.shape, np.int32) - np.array(part.shape, np.int32)),
            "steps": Constant("steps", np.array(contiguous_strides(x.shape), np.int32) * unit),
            "loops": Constant("loops", loop_records(records, OUTER_LOOPS), record="mf_loop"),
            "axes": x.rank,
            "length": length * unit,
        }

    def call(self, layer: LayerContext, template: str, **more: Parameter) -> KernelCall:
        *_, start = self.types(layer)
        function = CFunction(
            f"movement/{template}", self.name, (("index", C_TYPES[start.dtype]),), self.fields
        )
        return KernelCall(function, self.parameters(layer) | more)


def _runs(part: TensorType, source: TensorType, target: TensorType) -> list[tuple[int, ...]]:
    """Return the loops over a slice, with the steps of two contiguous tensors; the last one is a run."""
    loops = merge_axes(part.shape, contiguous_strides(source.shape), contiguous_strides(target.shape))
    return loops if loops and loops[-1][1:] == (1, 1) else [*loops, (1, 1, 1)]


@register
class DynamicUpdateSlicePortable(_Slice):
    """Copy of the tensor, unless it is updated in place, and of the update into it."""

    name = "dynamic_update_slice__c"
    op = DynamicUpdateSlice
    fields = (*_SLICES, Field("total", "bytes of the tensor"))

    def types(self, layer: LayerContext) -> tuple[TensorType, TensorType, TensorType]:
        x, update, start = (v.type for v in layer.node.operands)
        return x, update, start

    def loops(self, layer: LayerContext) -> list[tuple[int, ...]]:
        x, update, _ = self.types(layer)
        return _runs(update, update, x)

    def terms(self, layer: LayerContext) -> Terms:
        return super().terms(layer) + copy_terms(1, layer.node.operands[0].type.nbytes)

    def in_place(self, layer: LayerContext, index: int) -> bool:
        return index == 0

    def lower(self, layer: LayerContext) -> KernelCall:
        total = layer.node.operands[0].type.nbytes
        return self.call(layer, "dynamic_update_slice.c.j2", total=total)


@register
class DynamicSlicePortable(_Slice):
    """Copy of a slice at a computed start."""

    name = "dynamic_slice__c"
    like = "dynamic_update_slice__c"
    op = DynamicSlice
    fields = _SLICES

    def types(self, layer: LayerContext) -> tuple[TensorType, TensorType, TensorType]:
        x, start = (v.type for v in layer.node.operands)
        return x, layer.node.output.type, start

    def loops(self, layer: LayerContext) -> list[tuple[int, ...]]:
        x, part, _ = self.types(layer)
        return _runs(part, x, part)

    def lower(self, layer: LayerContext) -> KernelCall:
        return self.call(layer, "dynamic_slice.c.j2")
