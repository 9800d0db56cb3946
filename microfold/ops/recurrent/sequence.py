"""Sequences of recurrent operators: [batch, steps, inputs], or time-major [steps, batch, inputs]."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from microfold.ir.op import require
from microfold.ir.types import Array, Shape, TensorType


class SequenceLayout(NamedTuple):
    """Extents of a sequence."""

    batch: int
    steps: int
    inputs: int
    time_major: bool

    def shape(self, width: int) -> Shape:
        """Return the shape of a sequence with `width` elements per step, in the same layout."""
        first, second = (self.steps, self.batch) if self.time_major else (self.batch, self.steps)
        return (first, second, width)

    def strides(self, width: int) -> tuple[int, int]:
        """Return the distance, in elements, between steps, and between sequences of the batch."""
        return (self.batch * width, width) if self.time_major else (width, self.steps * width)


def layout_of(x: TensorType, time_major: bool) -> SequenceLayout:
    """Return the layout of a sequence of rank 3."""
    first, second, inputs = x.shape
    batch, steps = (second, first) if time_major else (first, second)
    return SequenceLayout(batch, steps, inputs, time_major)


def check_input(op: str, x: TensorType, time_major: bool) -> SequenceLayout:
    """Check the type rule of a sequence.

    Raises:
        TypeRuleError: it does not have three axes, or it has no elements.
    """
    require(x.rank == 3 and x.size > 0, f"{op}: the input must be a sequence of three axes; it is {x}")
    return layout_of(x, time_major)


def check_states(op: str, layout: SequenceLayout, hidden: TensorType, cell: TensorType) -> tuple[int, int]:
    """Check the type rule of an LSTM's states, hidden [N, H] and cell [N, U], and return H and U.

    Raises:
        TypeRuleError: the states do not have these shapes.
    """
    require(
        hidden.rank == cell.rank == 2 and hidden.shape[0] == cell.shape[0] == layout.batch,
        f"{op}: the states must be hidden [{layout.batch}, H] and cell [{layout.batch}, U]; they are "
        f"{hidden} and {cell}",
    )
    return hidden.shape[1], cell.shape[1]


def check_clips(op: str, cell_clip: float, projection_clip: float) -> None:
    """Raise `TypeRuleError` if a clip of an LSTM is negative."""
    require(
        cell_clip >= 0 and projection_clip >= 0,
        f"{op}: clips must not be negative; they are {cell_clip} and {projection_clip}",
    )


def steps_first(x: Array, time_major: bool) -> Array:
    """Return a sequence as [steps, batch, inputs]."""
    return x if time_major else x.swapaxes(0, 1)


def run(
    step: Callable[..., tuple[Array, ...]], elements: Iterable[Any], states: Sequence[Array], time_major: bool
) -> tuple[Array, ...]:
    """Return the first state after each step, as a sequence in its layout, then all states after the last.

    Args:
        step: function of an element and the states before it, which returns the states after it.
        elements: one element for each step.
    """
    results: list[Array] = []
    for element in elements:
        states = step(element, *states)
        results.append(states[0])
    return restore(np.stack(results), time_major), *states


def products(x: TensorType, *weights: TensorType | None) -> int:
    """Return the number of multiplications of each element of each sequence with all of these weights."""
    return math.prod(x.shape[:2]) * sum(each.size for each in weights if each is not None)


def restore(x: Array, time_major: bool) -> Array:
    """Return a sequence of [steps, batch, outputs] in its own layout."""
    return x if time_major else np.ascontiguousarray(x.swapaxes(0, 1))
