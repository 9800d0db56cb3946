"""Elementwise angle of a point."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import register
from microfold.ir.types import Array
from microfold.ops.elementwise.float_binary import FloatBinary


@register
class Atan2(FloatBinary, frozen=True):
    """Angle of the point (second, first), in (-pi, pi]."""

    name: ClassVar[str] = "atan2"

    def function(self, first: Array, second: Array) -> Array:
        return np.arctan2(first.astype(np.float64), second.astype(np.float64))
