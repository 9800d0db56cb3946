"""Sliding window of rows: new rows replace the oldest ones."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, Tensor, TensorType


@register
class ShiftIn(Op, frozen=True):
    """``window`` without its first elements along an axis, followed by ``rows``, with its size unchanged.

    If the window is a state, its next content is computed in place, see `ir.in_place`.
    """

    name: ClassVar[str] = "shift_in"
    updates_in_place: ClassVar[bool] = True
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    axis: int

    def infer(self, window: TensorType, rows: TensorType) -> TensorType:
        require(
            0 <= self.axis < window.rank,
            f"shift_in: axis {self.axis} must be in [0, {window.rank}) of {window}",
        )
        require(
            window.element == rows.element,
            f"shift_in: window and rows must have one element type; they have {window.element} and "
            f"{rows.element}",
        )
        require(
            window.rank == rows.rank
            and 1 <= rows.shape[self.axis] < window.shape[self.axis]
            and self._others(window) == self._others(rows),
            f"shift_in: the rows must be fewer than those of the window {window} along axis {self.axis}, and "
            f"agree with it along all other axes; they are {rows}",
        )
        require(
            window.quant is None or window.quant.axis is None,
            "shift_in: per-channel values are not supported",
        )
        return window

    def _others(self, x: TensorType) -> tuple[int, ...]:
        return (*x.shape[: self.axis], *x.shape[self.axis + 1 :])

    def reference(self, window: Tensor, rows: Tensor) -> Array:
        kept = np.delete(window.data, range(rows.type.shape[self.axis]), axis=self.axis)
        return np.concatenate([kept, rows.data], axis=self.axis)
