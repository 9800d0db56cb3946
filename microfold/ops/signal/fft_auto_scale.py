"""Scaling of samples to the full range before a Fourier transform."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp


@register
class SignalFftAutoScale(SignalOp, frozen=True):
    """int16 samples, shifted to the left until the largest magnitude needs 15 bits, and the shift, int32 [].

    Like the reference, the search keeps the largest magnitude as int16, in which the magnitude of -32768 is
    negative. If a sample is -32768, only the samples after the last one of these count, and the shifted
    samples can wrap around. Source: ``signal/src/fft_auto_scale.cc`` and ``max_abs.cc`` of tflite-micro.
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
