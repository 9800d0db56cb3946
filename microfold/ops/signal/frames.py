"""Overlapping frames of samples that arrive in blocks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp


@register
class SignalFrames(SignalOp, frozen=True):
    """Frames [..., n, frame_size] of int16 samples.

    The samples are kept ones, [..., K], followed by new ones, [..., n * frame_step]. The first frame starts
    at the oldest sample, each further frame `frame_step` samples after the one before. The second result
    contains the samples to keep for the next call: the last K samples.
    """

    name: ClassVar[str] = "signal_frames"

    frame_size: int
    frame_step: int

    def infer(self, x: TensorType, kept: TensorType) -> tuple[TensorType, TensorType]:
        require(
            x.dtype is kept.dtype is DType.INT16
            and 0 < x.rank == kept.rank
            and x.shape[:-1] == kept.shape[:-1],
            f"{self.name}: needs int16 samples and those kept, with equal axes except the last; "
            f"they are {x} and {kept}",
        )
        require(
            self.frame_size > 0 and self.frame_step > 0,
            f"{self.name}: size and step must be positive; they are {self.frame_size} and {self.frame_step}",
        )
        new, count = x.shape[-1], kept.shape[-1]
        require(
            new > 0 and new % self.frame_step == 0,
            f"signal_frames: the samples must be a multiple of the step, {self.frame_step}; they are {new}",
        )
        require(
            count > 0 and count + self.frame_step >= self.frame_size,
            f"{self.name}: a frame of {self.frame_size} must fit in {count} samples and a step of "
            f"{self.frame_step}",
        )
        shape = (*x.shape[:-1], new // self.frame_step, self.frame_size)
        return TensorType(DType.INT16, shape), TensorType(DType.INT16, kept.shape)

    def reference(self, x: Tensor, kept: Tensor) -> tuple[Array, Array]:
        samples = np.concatenate([kept.data, x.data], axis=-1)
        starts = np.arange(x.type.shape[-1] // self.frame_step) * self.frame_step
        return samples[..., starts[:, None] + np.arange(self.frame_size)], samples[..., x.type.shape[-1] :]
