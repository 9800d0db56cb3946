"""Inputs and outputs of a compiled model, as seen from Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from microfold.arithmetic.numerics import round_half_away_array
from microfold.errors import InputError
from microfold.ir.types import Array, TensorType
from microfold.support.frozen import frozen


@frozen
class Port:
    """Input or output of a model.

    Attributes:
        name: name in the model.
        type: element type, shape and quantisation.
    """

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type in numpy."""
        return self.type.dtype.numpy

    @property
    def scale(self) -> float | None:
        """Scale in ``real = scale * (q - zero_point)``; None if the port is not quantised."""
        return self.type.quant.scale if self.type.quant is not None else None

    @property
    def zero_point(self) -> int | None:
        return self.type.quant.zero_point if self.type.quant is not None else None

    def quantize(self, real: Array | float) -> Array:
        """Quantise real numbers: round to the nearest step, ties away from zero, and saturate.

        Args:
            real: array of the port's shape, or an array that broadcasts to it.

        Returns:
            An array of the port's shape and type. For float ports, the numbers are only converted.

        Raises:
            InputError: the shape does not match.
        """
        try:
            values = np.broadcast_to(np.asarray(real, np.float32), self.shape)
        except ValueError:
            raise InputError(
                f"{self.name!r} must have the shape {list(self.shape)}; got {list(np.shape(real))}"
            ) from None
        quant = self.type.quant
        if quant is None:
            return values.astype(self.dtype)
        steps = round_half_away_array(values / np.float32(quant.scale)).astype(np.float64) + quant.zero_point
        return np.clip(steps, *self.type.dtype.range).astype(self.dtype)

    def dequantize(self, array: Array) -> Array:
        """Return the elements as real numbers, float32. For float ports, they are only converted."""
        if self.type.quant is None:
            return array.astype(np.float32)
        centred = array.astype(np.int64) - self.type.quant.zero_point
        return (centred * self.type.quant.scale).astype(np.float32)

    def __str__(self) -> str:
        return f"{self.name!r} {self.type}"
