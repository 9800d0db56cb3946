"""Energies of a spectrum, summed in overlapping bands."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp


@register
class SignalFilterBank(SignalOp, frozen=True):
    """Weighted sums, uint64 [num_channels], of energies uint32 [N].

    Band b in [0, num_channels] contains `widths[b]` energies from `frequency_starts[b]` on. Channel b - 1
    adds them with the `weights` from `weight_starts[b]` on, channel b with the `unweights` from there on. All
    operands but the energies are int16; sums wrap around. Source: ``signal/src/filter_bank.cc`` of
    tflite-micro.
    """

    name: ClassVar[str] = "signal_filter_bank"

    num_channels: int

    def infer(
        self,
        x: TensorType,
        weights: TensorType,
        unweights: TensorType,
        frequency_starts: TensorType,
        weight_starts: TensorType,
        widths: TensorType,
    ) -> TensorType:
        require(x.dtype is DType.UINT32 and x.rank == 1, f"signal_filter_bank: needs uint32 [N]; it is {x}")
        require(
            self.num_channels > 0,
            f"signal_filter_bank: num_channels must be positive; it is {self.num_channels}",
        )
        bands = self.num_channels + 1
        for tensor in (weights, unweights, frequency_starts, weight_starts, widths):
            require(
                tensor.dtype is DType.INT16 and tensor.rank == 1,
                f"signal_filter_bank: weights, starts and widths must be int16 lists; one is {tensor}",
            )
        require(
            weights.shape == unweights.shape,
            f"signal_filter_bank: there must be as many unweights as weights; "
            f"they are {weights} and {unweights}",
        )
        for tensor in (frequency_starts, weight_starts, widths):
            require(
                tensor.shape == (bands,),
                f"signal_filter_bank: {self.num_channels} channels need {bands} starts and widths; "
                f"there are {tensor.shape[0]}",
            )
        return TensorType(DType.UINT64, (self.num_channels,))

    def reference(
        self,
        x: Tensor,
        weights: Tensor,
        unweights: Tensor,
        frequency_starts: Tensor,
        weight_starts: Tensor,
        widths: Tensor,
    ) -> Array:
        energies = x.data.astype(np.uint64)
        sums = np.zeros(self.num_channels + 2, np.uint64)
        bands = zip(*(t.data.tolist() for t in (frequency_starts, weight_starts, widths)), strict=True)
        for band, (frequency, weight, width) in enumerate(bands):
            part = energies[frequency : frequency + width]
            for channel, factors in ((band, weights), (band + 1, unweights)):
                # A negative weight counts modulo 2^64.
                factor = factors.data[weight : weight + width].astype(np.int64).astype(np.uint64)
                sums[channel : channel + 1] += (part * factor).sum(dtype=np.uint64)
        return sums[1:-1]

    def macs(
        self,
        x: TensorType,
        weights: TensorType,
        _unweights: TensorType,
        _frequency_starts: TensorType,
        _weight_starts: TensorType,
        _widths: TensorType,
    ) -> int:
        del x
        return 2 * weights.size


def bounds_fault(
    size: int, weights: int, frequency_starts: Array, weight_starts: Array, widths: Array
) -> str:
    """Return the reason why bands exceed `size` energies or `weights` weights, or "" if they do not."""
    if widths.max() <= 0:
        return "at least one of its bands must contain energies; none does"
    for what, starts, count in (("energies", frequency_starts, size), ("weights", weight_starts, weights)):
        ends = starts.astype(np.int64) + np.maximum(widths.astype(np.int64), 0)
        if starts.min() < 0 or ends.max() > count:
            return (
                f"its bands must be within its {count} {what}; they reach from {int(starts.min())} "
                f"to {int(ends.max())}"
            )
    return ""
