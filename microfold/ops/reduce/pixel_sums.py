"""The two halves of a mean over an image: sums of pixels, and what follows from the sums.

No model has them: they take the place of a pool whose image is computed row by row, see
`microfold.lowering.pixel_sums`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, require
from microfold.ir.types import Array, DType, ElementType, Tensor, TensorType


@dataclass(frozen=True)
class PixelSums(Op):
    """Of each channel of an image the sum of all pixels, in int32.

    Attributes:
        adds: a call adds to what is there, instead of beginning with 0: that of a row which is not the first.
    """

    name: ClassVar[str] = "pixel_sums"

    adds: bool = False

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype is DType.INT8 and x.rank == 4 and x.shape[0] == 1,
            f"{self.name}: needs an int8 image [1, H, W, C]; it is {x}",
        )
        return TensorType(DType.INT32, (1, 1, 1, x.shape[3]))

    def reference(self, x: Tensor) -> Array:
        return x.data.sum(axis=(1, 2), keepdims=True, dtype=np.int32)


@dataclass(frozen=True)
class MeanOfSums(Op):
    """Sums divided by how many elements they are of, halves rounded away from zero.

    Attributes:
        count: elements.
        out: of the image and of the result.
    """

    name: ClassVar[str] = "mean_of_sums"

    count: int
    out: ElementType

    def infer(self, sums: TensorType) -> TensorType:
        require(sums.dtype is DType.INT32, f"{self.name}: needs sums in int32; it is {sums}")
        return TensorType(self.out.dtype, sums.shape, self.out.quant)

    def reference(self, sums: Tensor) -> Array:
        wide = sums.data.astype(np.int64)
        means = np.sign(wide) * ((np.abs(wide) + self.count // 2) // self.count)
        return means.astype(self.out.dtype.numpy)
