"""Window function on frames of samples."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp


@register
class SignalWindow(SignalOp, frozen=True):
    """Frames of int16 samples times the weights [frame], shifted to the right and saturated.

    The samples are consecutive frames. Source: ``signal/src/window.cc`` of tflite-micro.
    """

    name: ClassVar[str] = "signal_window"

    shift: int

    def infer(self, x: TensorType, weights: TensorType) -> TensorType:
        require(
            x.dtype is weights.dtype is DType.INT16,
            f"signal_window: needs int16 and int16 weights; they are {x} and {weights}",
        )
        require(0 <= self.shift < 32, f"signal_window: the shift must be in [0, 32); it is {self.shift}")
        require(
            x.rank > 0 and weights.rank == 1 and weights.size > 0 and x.size % weights.size == 0,
            f"signal_window: the samples must be frames as long as the weights; they are {x} and {weights}",
        )
        return TensorType(DType.INT16, x.shape)

    def reference(self, x: Tensor, weights: Tensor) -> Array:
        frames = x.data.reshape(-1, weights.type.size).astype(np.int64)
        shifted = (frames * weights.data) >> self.shift
        return np.clip(shifted, *DType.INT16.range).astype(np.int16).reshape(x.type.shape)

    def operations(self, x: TensorType, weights: TensorType) -> int:
        del weights
        return 3 * x.size
