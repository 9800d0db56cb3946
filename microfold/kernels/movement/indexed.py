"""Slices at positions that are computed: gathered, added up, or replaced, in portable C.

No position leads out of a tensor, whatever the indices are.
"""

from __future__ import annotations

import math

import numpy as np

from microfold.ir.types import DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.elementwise.broadcast import contiguous_strides, loop_records, merge_axes
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.movement.copy import OUTER_LOOPS, copy_cost
from microfold.ops.movement.dynamic_update_slice import DynamicUpdateSlice
from microfold.ops.movement.gather_nd import GatherNd
from microfold.ops.movement.scatter_nd import ScatterNd

# The integers that C computes positions of these indices in.
_POSITIONS = {DType.INT16: "int32_t", DType.INT32: "int32_t", DType.INT64: "int64_t"}

_AXES = declare(
    Field("extents", "of the axes that indices count along"),
    Field("steps", "from one index to the next"),
    Field("depth", "indices of a position"),
    Field("count", "of positions"),
)


def _axes(x: TensorType, indices: TensorType, unit: int) -> dict[str, Parameter]:
    """Values of `_AXES`; `unit`: what one element counts in steps."""
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
    """Slices as bytes, one position after the other; an index out of range takes the nearest slice.

    `extents` and `steps`, in bytes, are those of the axes that indices count along.
    """

    name = "gather_nd__c"
    op = GatherNd
    fields = (*_AXES, Field("size", "bytes of a slice"))

    def supports(self, layer: LayerContext) -> str | None:
        if layer.node.operands[0].type.dtype is DType.INT4:
            return "int4 values have no bytes of their own"
        return "it fuses nothing" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1)

    def cost(self, layer: LayerContext) -> float:
        out, indices = layer.node.outputs[0].type, layer.node.operands[1].type
        return out.nbytes * 1.5 + indices.size * 12 + indices.size // indices.shape[-1] * 30

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
    """Zeros, to which slices are added element by element, in their order; integers wrap round.

    `extents` and `steps`, in elements, are those of the axes that indices count along. A slice whose position
    is out of range is left out.
    """

    name = "scatter_nd__c"
    op = ScatterNd
    fields = (*_AXES, Field("size", "elements of a slice"), Field("total", "elements of the output"))

    def supports(self, layer: LayerContext) -> str | None:
        return "it fuses nothing" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1)

    def cost(self, layer: LayerContext) -> float:
        indices, updates = (v.type for v in layer.node.operands)
        return layer.node.output.type.nbytes + indices.size * 12 + updates.size * 8

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


@register
class DynamicUpdateSlicePortable(Kernel):
    """Copies the tensor, if the output is another one, then the update into it, by runs of bytes.

    `limits` are the largest starts, `steps` the bytes from one index to the next, along each axis. `loops`
    are four records (size, step in the update, step in the output), trivial ones in front.
    """

    name = "dynamic_update_slice__c"
    op = DynamicUpdateSlice
    fields = declare(
        Field("limits", "the largest starts"),
        Field("steps", "bytes from one index to the next"),
        Field("loops", "first: bytes in the update; second: bytes in the output"),
        Field("axes", "of the tensor"),
        Field("length", "bytes of a run"),
        Field("total", "bytes of the tensor"),
    )

    def _loops(self, layer: LayerContext) -> list[tuple[int, ...]]:
        x, update = (v.type for v in layer.node.operands[:2])
        loops = merge_axes(update.shape, contiguous_strides(update.shape), contiguous_strides(x.shape))
        return loops if loops[-1][1:] == (1, 1) else [*loops, (1, 1, 1)]

    def supports(self, layer: LayerContext) -> str | None:
        if layer.node.operands[0].type.dtype is DType.INT4:
            return "int4 values have no bytes of their own"
        if len(self._loops(layer)) > OUTER_LOOPS + 1:
            return "the update is in parts along too many axes"
        return "it fuses nothing" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1, 2)

    def cost(self, layer: LayerContext) -> float:
        x, update = (v.type for v in layer.node.operands[:2])
        run = self._loops(layer)[-1][0]
        copies = copy_cost(layer, update.size // run, run * x.dtype.itemsize)
        return copy_cost(layer, 1, x.nbytes) + copies + 60

    def in_place(self, layer: LayerContext, index: int) -> bool:
        return index == 0

    def lower(self, layer: LayerContext) -> KernelCall:
        x, update, start = (v.type for v in layer.node.operands)
        unit = x.dtype.itemsize
        *outer, (length, _, _) = self._loops(layer)
        records = [(n, source * unit, target * unit) for n, source, target in outer]
        steps = np.array(contiguous_strides(x.shape), np.int32) * unit
        limits = np.array(x.shape, np.int32) - np.array(update.shape, np.int32)
        parameters: dict[str, Parameter] = {
            "limits": Constant("limits", limits),
            "steps": Constant("steps", steps),
            "loops": Constant("loops", loop_records(records, OUTER_LOOPS), record="mf_loop"),
            "axes": x.rank,
            "length": length * unit,
            "total": x.nbytes,
        }
        spec = (("index", C_TYPES[start.dtype]),)
        return KernelCall(
            CFunction("movement/dynamic_update_slice.c.j2", self.name, spec, self.fields), parameters
        )
