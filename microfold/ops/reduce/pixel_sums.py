"""Mean over an image in two steps: sums of pixels, and the mean from the sums.

Models do not contain these operators. They replace a pool whose image is streamed, see
`microfold.lowering.pixel_sums`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType

# Accumulator type for each type of pixels.
SUMMED = {DType.INT8: DType.INT32, DType.INT16: DType.INT32, DType.FLOAT32: DType.FLOAT32}


class PixelSums(Op, frozen=True):
    """Sum of all pixels for each channel of an image: integers in int32, floats row by row.

    Attributes:
        adds: whether a call adds to the previous result instead of starting with 0, for rows after the first.
    """

    name: ClassVar[str] = "pixel_sums"

    adds: bool = False

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype in SUMMED and x.rank == 4 and x.shape[0] == 1,
            f"{self.name}: needs an image [1, H, W, C] of {', '.join(d.value for d in SUMMED)}; it is {x}",
        )
        return TensorType(SUMMED[x.dtype], (1, 1, 1, x.shape[3]))

    def reference(self, x: Tensor) -> Array:
        return x.data.sum(axis=(1, 2), keepdims=True, dtype=SUMMED[x.type.dtype].numpy)


class MeanOfSums(Op, frozen=True):
    """Sums divided by the number of their elements. For integers, halves are rounded away from zero.

    Attributes:
        count: number of elements in a sum.
        out: element type of the image and of the result.
    """

    name: ClassVar[str] = "mean_of_sums"

    count: int
    out: ElementType

    def infer(self, sums: TensorType) -> TensorType:
        wanted = SUMMED.get(self.out.dtype)
        require(sums.dtype is wanted, f"{self.name}: {self.out.dtype.value} has no sums like {sums}")
        return TensorType(self.out.dtype, sums.shape, self.out.quant)

    def reference(self, sums: Tensor) -> Array:
        if self.out.dtype.is_float:
            return sums.data / sums.data.dtype.type(self.count)
        wide = sums.data.astype(np.int64)
        means = np.sign(wide) * ((np.abs(wide) + self.count // 2) // self.count)
        return means.astype(self.out.dtype.numpy)
