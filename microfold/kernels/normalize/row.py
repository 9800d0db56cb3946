"""Base class of kernels that compute one row along the last axis after the other."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.types import DType
from microfold.kernels.call import Parameter
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range


class RowKernel(Kernel):
    """Base class of kernels that read a whole row before they write it element by element.

    Class attributes:
        dtypes: element types of input and output.
        maximum_depth: largest number of elements of a row for which no sum overflows; None if there is no
            limit.
    """

    dtypes: ClassVar[tuple[DType, DType]]
    maximum_depth: ClassVar[int | None] = None

    def supports(self, layer: LayerContext) -> str | None:
        x, out = layer.node.operands[0].type, layer.node.outputs[0].type
        if self.maximum_depth is not None and x.shape[-1] > self.maximum_depth:
            return f"it needs at most {self.maximum_depth} elements in a row; got {x.shape[-1]}"
        if (x.dtype, out.dtype) != self.dtypes:
            return f"it supports only {self.dtypes[0].value} to {self.dtypes[1].value}"
        return output_range.unsupported_epilogue(layer.node)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        return 0 if self.dtypes[0].itemsize == self.dtypes[1].itemsize else None

    def shape(self, layer: LayerContext) -> dict[str, Parameter]:
        """Return the layer fields for the number of rows and of their elements."""
        x = layer.node.operands[0].type
        return {"rows": x.size // x.shape[-1], "depth": x.shape[-1]}
