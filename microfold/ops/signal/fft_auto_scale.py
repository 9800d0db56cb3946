"""Samples scaled so that a transform loses little."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp
from microfold.support.frozen import frozen


@register
@frozen
class SignalFftAutoScale(SignalOp):
    """int16 samples shifted to the left until the largest magnitude fills 15 bits; and by how many, int32 [].

    The largest magnitude is an int16 while it is looked for, so that -32768 is less than what follows it:
    then it is that of the samples behind the last -32768, and what leaves int16 wraps. Source:
    ``signal/src/fft_auto_scale.cc`` and ``max_abs.cc`` of tflite-micro.
    """

    name: ClassVar[str] = "signal_fft_auto_scale"

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require(x.dtype is DType.INT16 and x.rank == 1, f"signal_fft_auto_scale: needs int16 [N]; it is {x}")
        return TensorType(DType.INT16, x.shape), TensorType(DType.INT32, ())

    def reference(self, x: Tensor) -> tuple[Array, Array]:
        largest = self._largest(x.data)
        bits = 15 - largest.bit_length() if largest > 0 else 0
        return (x.data.astype(np.int32) << bits).astype(np.int16), np.array(bits, np.int32)

    @staticmethod
    def _largest(x: Array) -> int:
        lowest = np.flatnonzero(x == DType.INT16.range[0])
        if not lowest.size:
            return int(np.abs(x.astype(np.int32)).max(initial=0))
        largest = DType.INT16.range[0]
        for sample in x[lowest[-1] + 1 :].tolist():
            largest = max(sample, largest) if sample > largest else max(-sample, largest)
        return largest

    def operations(self, x: TensorType) -> int:
        return 4 * x.size
