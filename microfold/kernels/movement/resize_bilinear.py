"""Bilinear resizing in portable C."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.types import Array, DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.movement.resize_bilinear import ResizeBilinear


class _ResizeBilinear(Kernel):
    """Bilinear resizing with tables of neighbours and weights of rows and columns.

    The constants `rows` and `columns` are pairs of offsets in elements, int32 [outputs, 2]. The constants
    `row_weights` and `column_weights` have the weight of each second neighbour. All come from the operator's
    own positions.

    Class attributes:
        dtype: element type of input and output.
        accumulator: C type of the sum.
    """

    dtype: ClassVar[DType]
    accumulator: ClassVar[str]
    fields = declare(
        Field("rows", "offsets of the two source rows of each output row"),
        Field("row_weights", "weight of the second row, in 1/1024"),
        Field("columns", "offsets of the two source columns of each output column"),
        "column_weights",
        "batch",
        "input_size",
        "output_height",
        "output_width",
        "channels",
    )

    def supports(self, layer: LayerContext) -> str | None:
        x = layer.node.operands[0].type
        if x.dtype is not self.dtype:
            return f"it needs {self.dtype.value}; got {x.dtype.value}"
        return "it does not support an epilogue" if layer.node.epilogue else None

    def terms(self, layer: LayerContext) -> Terms:
        out = layer.node.outputs[0].type
        return Terms(call=1, pixel=out.size / out.shape[3], element=out.size)

    def lower(self, layer: LayerContext) -> KernelCall:
        op = layer.node.op
        assert isinstance(op, ResizeBilinear)
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        floating = op.is_floating(self.dtype)
        positions = op.float_positions if floating else op.integer_positions
        parameters: dict[str, Parameter] = {}
        steps = (x.shape[2] * x.shape[3], x.shape[3])
        for axis, what, step in ((1, "row", steps[0]), (2, "column", steps[1])):
            low, high, weight = positions(x.shape[axis], out.shape[axis])
            neighbours: Array = np.stack([low, high], axis=1).astype(np.int32) * step
            weights = weight.astype(np.float32 if floating else np.int32)
            parameters[f"{what}s"] = Constant(f"{what}s", np.ascontiguousarray(neighbours))
            parameters[f"{what}_weights"] = Constant(f"{what}_weights", weights)
        parameters |= {
            "batch": out.shape[0],
            "input_size": x.size // x.shape[0],
            "output_height": out.shape[1],
            "output_width": out.shape[2],
            "channels": out.shape[3],
        }
        spec = (("type", C_TYPES[self.dtype]), ("accumulator", self.accumulator))
        return KernelCall(
            CFunction("movement/resize_bilinear.c.j2", self.name, spec, self.fields), parameters
        )


@register
class ResizeBilinearInt8(_ResizeBilinear):
    """int8 resizing with weights in 1/1024; the int32 sum of four products is rounded half away from zero."""

    name = "s8_resize_bilinear__c"
    op = ResizeBilinear
    dtype = DType.INT8
    accumulator = "int32_t"


@register
class ResizeBilinearInt16(_ResizeBilinear):
    """int16 resizing with weights in 1/1024; the sum of four products has 64 bits."""

    name = "s16_resize_bilinear__c"
    op = ResizeBilinear
    dtype = DType.INT16
    accumulator = "int64_t"


@register
class ResizeBilinearUint8(_ResizeBilinear):
    """uint8 resizing in float32: bytes are converted, and results are rounded half up."""

    name = "u8_resize_bilinear__c"
    like = "f32_resize_bilinear__c"
    op = ResizeBilinear
    dtype = DType.UINT8
    accumulator = "float"
    fields = describe(_ResizeBilinear.fields, row_weights="weight of the second row")


@register
class ResizeBilinearFloat(_ResizeBilinear):
    """float32 resizing with four products, in the reference's order: the left column first."""

    name = "f32_resize_bilinear__c"
    op = ResizeBilinear
    dtype = DType.FLOAT32
    accumulator = "float"
    fields = describe(_ResizeBilinear.fields, row_weights="weight of the second row")
