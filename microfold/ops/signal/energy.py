"""Energy of a spectrum."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp


@register
class SignalEnergy(SignalOp, frozen=True):
    """Squared magnitudes, uint32 [N], of int16 complex numbers [2 * N].

    The result is computed from `start_index` to before `end_index`; other elements are 0. The reference
    leaves those uninitialised. Source: ``signal/src/energy.cc`` of tflite-micro.
    """

    name: ClassVar[str] = "signal_energy"

    start_index: int
    end_index: int

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype is DType.INT16 and x.rank == 1 and x.size % 2 == 0,
            f"signal_energy: needs pairs of int16, one after the other; it is {x}",
        )
        require(
            0 <= self.start_index <= self.end_index <= x.size // 2,
            f"signal_energy: start_index and end_index must be in [0, {x.size // 2}], in this order; "
            f"they are {self.start_index} and {self.end_index}",
        )
        return TensorType(DType.UINT32, (x.size // 2,))

    def reference(self, x: Tensor) -> Array:
        squares = x.data.astype(np.int64).reshape(-1, 2) ** 2
        inside = np.arange(len(squares))
        inside = (inside >= self.start_index) & (inside < self.end_index)
        return np.where(inside, squares.sum(axis=-1), 0).astype(np.uint32)

    def operations(self, x: TensorType) -> int:
        del x
        return 3 * (self.end_index - self.start_index)
