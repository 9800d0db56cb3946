"""float32 LSTM cell with all options of the reference: peephole, projection and layer normalisation."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from microfold.ir.types import Array

NORM_EPSILON = 1e-8  # added to variances


def sigmoid(x: Array) -> Array:
    """Return the logistic function of float32 elements."""
    with np.errstate(over="ignore"):
        return (np.float32(1) / (np.float32(1) + np.exp(-x))).astype(np.float32)


class FloatCell(Struct, frozen=True, eq=False):
    """Cell with its weights; see `Lstm` for their shapes.

    Attributes:
        clips: clips of the cell and of the projection; 0 for none.
    """

    input_weights: Array
    recurrent_weights: Array
    bias: Array
    peephole: Array | None = None
    projection: Array | None = None
    projection_bias: Array | None = None
    norm: Array | None = None
    clips: tuple[float, float] = (0.0, 0.0)

    def step(self, x: Array, hidden: Array, cell: Array) -> tuple[Array, Array]:
        """Return both states after one step."""
        units = cell.shape[1]
        products = self.sums(x, hidden)
        coupled = len(self.bias) == 3 * units
        names = "fgo" if coupled else "ifgo"
        rows = {name: slice(k * units, (k + 1) * units) for k, name in enumerate(names)}
        looking = {name: slice(k * units, (k + 1) * units) for k, name in enumerate(names.replace("g", ""))}

        def gate(name: str, seen: Array) -> Array:
            value = products[:, rows[name]]
            if self.peephole is not None and name != "g":
                value = value + self.peephole[looking[name]] * seen
            if self.norm is None:
                return value
            return _normalized(value) * self.norm[rows[name]] + self.bias[rows[name]]

        f, g = sigmoid(gate("f", cell)), np.tanh(gate("g", cell))
        i = np.float32(1) - f if coupled else sigmoid(gate("i", cell))
        new = _clipped(f * cell + i * g, self.clips[0])
        shown = sigmoid(gate("o", new)) * np.tanh(new)
        if self.projection is not None:
            shown = self.projected(shown)
            if self.projection_bias is not None:
                shown = shown + self.projection_bias
            shown = _clipped(shown, self.clips[1])
        return shown.astype(np.float32), new.astype(np.float32)

    def sums(self, x: Array, hidden: Array) -> Array:
        """Return the gates' products, with the bias unless they are normalised before it is added."""
        products = x @ self.input_weights.T + hidden @ self.recurrent_weights.T
        return products if self.norm is not None else products + self.bias

    def projected(self, shown: Array) -> Array:
        """Return the units' results times the projection."""
        assert self.projection is not None
        return shown @ self.projection.T


def _clipped(x: Array, limit: float) -> Array:
    return np.clip(x, np.float32(-limit), np.float32(limit)) if limit > 0 else x


def _normalized(x: Array) -> Array:
    """Return rows normalised to mean 0 and variance 1."""
    centred = x - x.mean(axis=-1, keepdims=True, dtype=np.float64)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return (centred / np.sqrt(variance + NORM_EPSILON)).astype(np.float32)
