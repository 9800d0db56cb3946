"""Per-channel automatic gain control."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp

GAINS = 125


@register
class SignalPcan(SignalOp, frozen=True):
    """uint32 [N] times gains that depend on noise estimates, uint32 [N], with a compressed range.

    ``gain_lut``, int16 [125 or more], contains the gains at 0 and 1, then four numbers for each bit length
    from 2 on: the gain at the smallest number of that length, the linear and the quadratic factor of a
    parabola from
        there
    on, and an unused number. Source: ``signal/src/pcan_argc_fixed.cc`` of tflite-micro.
    """

    name: ClassVar[str] = "signal_pcan"

    snr_shift: int

    def infer(self, x: TensorType, noise_estimate: TensorType, gain_lut: TensorType) -> TensorType:
        require(
            x.dtype is noise_estimate.dtype is DType.UINT32
            and x.rank == 1
            and x.shape == noise_estimate.shape,
            f"signal_pcan: needs uint32 [N] and as many estimates; they are {x} and {noise_estimate}",
        )
        require(
            gain_lut.dtype is DType.INT16 and gain_lut.rank == 1 and gain_lut.size >= GAINS,
            f"signal_pcan: gain_lut must be int16 [{GAINS}] or more; it is {gain_lut}",
        )
        require(
            0 <= self.snr_shift < 64, f"signal_pcan: snr_shift must be in [0, 64); it is {self.snr_shift}"
        )
        return TensorType(DType.UINT32, x.shape)

    def reference(self, x: Tensor, noise_estimate: Tensor, gain_lut: Tensor) -> Array:
        gain = _gains(noise_estimate.data.astype(np.int64), gain_lut.data.astype(np.int64))
        # A negative gain counts modulo 2^32.
        product = x.data.astype(np.uint64) * gain.astype(np.uint32).astype(np.uint64)
        ratio = (product >> np.uint64(self.snr_shift)).astype(np.uint32).astype(np.int64)
        parabola = (ratio * ratio) >> 20
        return np.where(ratio < 2 << 12, parabola, (ratio >> 6) - 64).astype(np.uint32)

    def operations(self, x: TensorType, noise_estimate: TensorType, gain_lut: TensorType) -> int:
        del noise_estimate, gain_lut
        return 20 * x.size


def _gains(estimate: Array, table: Array) -> Array:
    """Return the gains: int16 values, as int64."""
    # Exact, because doubles represent these integers exactly.
    bits = np.maximum(np.frexp(estimate.astype(np.float64))[1].astype(np.int64), 2)
    place = np.where(estimate <= 2, 0, 4 * bits - 6)
    fraction = ((estimate << 11) >> bits) & 0x3FF
    slope = ((table[place + 2] * fraction) >> 5) + (table[place + 1] << 5)
    # The product wraps around at 32 bits.
    above = ((slope * fraction).astype(np.int32).astype(np.int64) + (1 << 14)).astype(np.int32) >> 15
    curved = (table[place] + above).astype(np.int16)
    return np.where(estimate <= 2, table[np.minimum(estimate, 2)], curved).astype(np.int64)
