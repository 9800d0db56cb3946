"""A compiled model's inputs and outputs, as Python sees them."""

from __future__ import annotations

from typing import Any

import numpy as np

from microfold.arithmetic.numerics import round_half_away_array
from microfold.errors import InputError
from microfold.ir.types import Array, TensorType
from microfold.support.frozen import frozen


@frozen
class Port:
    """An input or output.

    Attributes:
        name: the model's name for it.
        type: element type, shape and quantisation.
    """

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """numpy's element type."""
        return self.type.dtype.numpy

    @property
    def scale(self) -> float | None:
        """``real = scale * (q - zero_point)``; None if it is not quantised."""
        return self.type.quant.scale if self.type.quant is not None else None

    @property
    def zero_point(self) -> int | None:
        return self.type.quant.zero_point if self.type.quant is not None else None

    def quantize(self, real: Array | float) -> Array:
        """Real numbers as the model takes them: rounded to the nearest step, limited to the type's range.

        Args:
            real: an array of the port's shape, or one that broadcasts to it.

        Returns:
            An array of the port's shape and type; of float ports just that.

        Raises:
            InputError: the shape does not fit.
        """
        try:
            values = np.broadcast_to(np.asarray(real, np.float32), self.shape)
        except ValueError:
            raise InputError(
                f"{self.name!r} must have the shape {list(self.shape)}; given {list(np.shape(real))}"
            ) from None
        quant = self.type.quant
        if quant is None:
            return values.astype(self.dtype)
        steps = round_half_away_array(values / np.float32(quant.scale)).astype(np.float64) + quant.zero_point
        return np.clip(steps, *self.type.dtype.range).astype(self.dtype)

    def dequantize(self, array: Array) -> Array:
        """Real numbers, float32, of the port's elements; of float ports just these."""
        if self.type.quant is None:
            return array.astype(np.float32)
        centred = array.astype(np.int64) - self.type.quant.zero_point
        return (centred * self.type.quant.scale).astype(np.float32)

    def __str__(self) -> str:
        return f"{self.name!r} {self.type}"
