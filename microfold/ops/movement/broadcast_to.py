"""Broadcasting as an explicit operator."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, Shape, Tensor, TensorType


@register
class BroadcastTo(Op, frozen=True):
    """Value repeated along new axes and axes of extent 1, as in numpy."""

    name: ClassVar[str] = "broadcast_to"
    pattern: ClassVar[Pattern] = Pattern.BROADCAST
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    shape: Shape

    def infer(self, x: TensorType) -> TensorType:
        tail = self.shape[len(self.shape) - x.rank :]
        require(
            x.rank <= len(self.shape) and all(n in (1, m) for n, m in zip(x.shape, tail, strict=True)),
            f"broadcast_to: {x} does not broadcast to {list(self.shape)}",
        )
        require(x.quant is None or x.quant.axis is None, "broadcast_to: per-channel values are not supported")
        return x.with_shape(self.shape)

    def reference(self, x: Tensor) -> Array:
        return np.broadcast_to(x.data, self.shape).copy()
