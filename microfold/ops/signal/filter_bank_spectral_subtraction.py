"""Subtraction of noise from energies."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp


@register
class SignalFilterBankSpectralSubtraction(SignalOp, frozen=True):
    """uint32 [N] minus a noise estimate, and the next estimate [N], which has `smoothing_bits` more bits.

    The estimate is smoothed from call to call: channels with even indices by `smoothing`, channels with odd
    indices by `alternate_smoothing`. The result is at least `min_signal_remaining` of the signal. These
    factors are fixed-point numbers with `spectral_subtraction_bits` fractional bits; sums of their products
    wrap around. With `clamping`, no estimate exceeds the signal. Source:
    ``signal/src/filter_bank_spectral_subtraction.cc`` of tflite-micro.
    """

    name: ClassVar[str] = "signal_filter_bank_spectral_subtraction"

    smoothing: int
    one_minus_smoothing: int
    alternate_smoothing: int
    alternate_one_minus_smoothing: int
    min_signal_remaining: int
    smoothing_bits: int
    spectral_subtraction_bits: int
    clamping: bool

    def infer(self, x: TensorType, estimate: TensorType) -> tuple[TensorType, TensorType]:
        require(
            x.dtype is estimate.dtype is DType.UINT32 and x.rank == 1 and x.shape == estimate.shape,
            f"{self.name}: needs uint32 [N] and an estimate of the same type; they are {x} and {estimate}",
        )
        for what, bits, limit in (
            ("smoothing_bits", self.smoothing_bits, 32),
            ("spectral_subtraction_bits", self.spectral_subtraction_bits, 64),
        ):
            require(0 <= bits < limit, f"{self.name}: {what} must be in [0, {limit}); it is {bits}")
        result = TensorType(DType.UINT32, x.shape)
        return result, result

    def reference(self, x: Tensor, estimate: Tensor) -> tuple[Array, Array]:
        smoothing, one_minus = (
            np.resize(np.array(pair, np.int64).astype(np.uint32), x.data.shape).astype(np.uint64)
            for pair in (
                (self.smoothing, self.alternate_smoothing),
                (self.one_minus_smoothing, self.alternate_one_minus_smoothing),
            )
        )
        bits = np.uint64(self.spectral_subtraction_bits)
        signal = (x.data << np.uint32(self.smoothing_bits)).astype(np.uint32)
        wide = signal.astype(np.uint64) * smoothing + estimate.data.astype(np.uint64) * one_minus
        following = (wide >> bits).astype(np.uint32)
        noise = np.minimum(following, signal)
        remaining = np.uint64(self.min_signal_remaining & 0xFFFFFFFF)
        floor = ((x.data.astype(np.uint64) * remaining) >> bits).astype(np.uint32)
        subtracted = (signal - noise) >> np.uint32(self.smoothing_bits)
        return np.maximum(subtracted, floor), noise if self.clamping else following

    def operations(self, x: TensorType, estimate: TensorType) -> int:
        del estimate
        return 12 * x.size
