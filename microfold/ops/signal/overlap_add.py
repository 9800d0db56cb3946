"""Overlap-add of frames of samples."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp


@register
class SignalOverlapAdd(SignalOp, frozen=True):
    """Sums [..., n * frame_step] of frames [..., n, size], each `frame_step` after the one before it.

    The second operand, [..., size - frame_step], contains partial sums of the first samples. The second
    result contains the partial sums for the next call. Elements are int16, saturated with each frame, or
    float32. Source: ``signal/src/overlap_add.cc`` of tflite-micro.
    """

    name: ClassVar[str] = "signal_overlap_add"

    frame_step: int

    def infer(self, x: TensorType, sums: TensorType) -> tuple[TensorType, TensorType]:
        require(
            x.dtype is sums.dtype and x.dtype in (DType.INT16, DType.FLOAT32) and x.rank >= 2,
            f"signal_overlap_add: needs frames [..., n, size] of int16 or float32; they are {x} and {sums}",
        )
        require(
            0 < self.frame_step < x.shape[-1],
            f"{self.name}: the step must be less than the size, {x.shape[-1]}; it is {self.frame_step}",
        )
        require(
            sums.shape == (*x.shape[:-2], x.shape[-1] - self.frame_step),
            f"signal_overlap_add: the partial sums must have size - step elements; they are {sums} for {x}",
        )
        shape = (*x.shape[:-2], x.shape[-2] * self.frame_step)
        return TensorType(x.dtype, shape), TensorType(x.dtype, sums.shape)

    def reference(self, x: Tensor, sums: Tensor) -> tuple[Array, Array]:
        running, step = sums.data, self.frame_step
        given: list[Array] = []
        for frame in np.moveaxis(x.data, -2, 0):
            ending = np.zeros((*running.shape[:-1], step), running.dtype)
            running = self._add(np.concatenate([running, ending], axis=-1), frame)
            given.append(running[..., :step])
            running = running[..., step:]
        return np.concatenate(given, axis=-1), np.ascontiguousarray(running)

    @staticmethod
    def _add(sums: Array, frame: Array) -> Array:
        if sums.dtype == np.float32:
            return sums + frame
        return np.clip(sums.astype(np.int32) + frame, *DType.INT16.range).astype(np.int16)

    def operations(self, x: TensorType, sums: TensorType) -> int:
        del sums
        return 2 * x.size
