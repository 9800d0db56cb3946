"""Sums and differences of int8 by a linear form of both operands, if one reproduces the reference.

The reference scales both operands to a common scale, and their sum to the output's scale. It rounds each
time, about 20 bits below the output's unit. For most sums there are factors with

    output = clamp((first * factors[0] + second * factors[1] + offset) >> shift)

for each of the 65,536 pairs, which this module checks. Results half-way between two integers are the
obstacle, because they are rounded away from zero on both sides. Slightly larger factors often satisfy both
sides.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.kernels.call import Parameter
from microfold.kernels.fields import Field, declare
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.sub import Sub

# Shifts that are tried, and relative amounts by which factors may be larger than the scales.
_SHIFTS = range(24, 13, -1)
_GROWTHS = (0.0, *(2.0**-k for k in range(20, 9, -1)))
_INT8 = np.arange(-128, 128, dtype=np.int64)
_OPEN = 1 << 40  # larger than any sum


class LinearForm(NamedTuple):
    """``output = clamp((first * factors[0] + second * factors[1] + offset) >> shift)`` in int32."""

    factors: tuple[int, int]
    offset: int
    shift: int


def layer_linear_form(layer: LayerContext) -> LinearForm | None:
    """Return the linear form of a node that adds or subtracts int8 values; None if none was found."""
    op = layer.node.op
    assert isinstance(op, Add | Sub)
    first, second = (v.type.with_shape(()) for v in layer.node.operands[:2])
    return find_linear_form(op, first, second, output_range.integer_bounds(layer.node))


def refuses_linear_form(layer: LayerContext) -> str | None:
    """Return the reason if the node has no linear form; else None."""
    if layer_linear_form(layer) is None:
        return "no linear form reproduces the reference's result for all operands"
    return None


LINEAR_FORM_FIELDS = declare(
    Field("first_factor", "output = (first * first_factor + second * second_factor + offset) >> shift"),
    "second_factor",
    "offset",
    "shift",
)


def linear_form_parameters(layer: LayerContext) -> dict[str, Parameter]:
    """Return the node's linear form as values of `LINEAR_FORM_FIELDS`."""
    form = layer_linear_form(layer)
    assert form is not None
    return {
        "first_factor": form.factors[0],
        "second_factor": form.factors[1],
        "offset": form.offset,
        "shift": form.shift,
    }


@lru_cache(maxsize=256)
def find_linear_form(
    op: Add | Sub, first: TensorType, second: TensorType, limits: tuple[int, int]
) -> LinearForm | None:
    """Find a linear form that reproduces the reference for all pairs of operands; None if none was found.

    Args:
        first, second: int8 types of any shape.
        limits: smallest and largest result after clamping.
    """
    assert first.quant is not None and second.quant is not None and op.out.quant is not None
    want = all_results(op, first, second, limits)
    sign = -1 if isinstance(op, Sub) else 1
    scales = first.quant.scale / op.out.quant.scale, sign * second.quant.scale / op.out.quant.scale
    first_values, second_values = np.meshgrid(_INT8, _INT8, indexing="ij")
    pairs = _Pairs(first_values.reshape(-1), second_values.reshape(-1), want.reshape(-1))
    # Pairs that excluded other factors. They mostly exclude the next factors also.
    obstacles: list[int] = []
    for shift in _SHIFTS:
        if 128 * (abs(scales[0]) + abs(scales[1])) * (1 << shift) >= 1 << 30:
            continue
        for growth in _GROWTHS:
            unit = (1 << shift) * (1 + growth)
            factors = round(scales[0] * unit), round(scales[1] * unit)
            if obstacles:
                at_least, below = pairs.of(obstacles).offsets(factors, shift, limits)
                if at_least.max() >= below.min():
                    continue
            at_least, below = pairs.offsets(factors, shift, limits)
            lowest, highest = int(at_least.max()), int(below.min()) - 1
            if lowest > highest:
                obstacles += [int(at_least.argmax()), int(below.argmin())]
                continue
            offset = (lowest + highest) // 2
            if abs(offset) + 128 * (abs(factors[0]) + abs(factors[1])) < 1 << 31:
                return LinearForm(factors, offset, shift)
    return None


class _Pairs(NamedTuple):
    """Pairs of operands with the reference's results, each an int64 array [pairs]."""

    first: Array
    second: Array
    results: Array

    def of(self, indices: list[int]) -> _Pairs:
        """Return some of the pairs."""
        return _Pairs(self.first[indices], self.second[indices], self.results[indices])

    def offsets(self, factors: tuple[int, int], shift: int, limits: tuple[int, int]) -> tuple[Array, Array]:
        """Return the smallest offset that yields each pair's result, and the smallest offset above the range.

        A result at a limit is open to one side, because it is clamped.
        """
        sums = self.first * factors[0] + self.second * factors[1]
        at_least = np.where(self.results == limits[0], -_OPEN, self.results << shift)
        below = np.where(self.results == limits[1], _OPEN, (self.results + 1) << shift)
        return at_least - sums, below - sums


@lru_cache(maxsize=4)
def all_results(op: Add | Sub, first: TensorType, second: TensorType, limits: tuple[int, int]) -> Array:
    """Return the reference's clamped results for operands -128 to 127, int64 [256, 256].

    The result is cached, because several kernels of a layer need it in turn.
    """
    x = _INT8.astype(np.int8)
    assert first.dtype is DType.INT8 and second.dtype is DType.INT8
    operands = (
        Tensor(first.with_shape((256, 1)), x.reshape(256, 1)),
        Tensor(second.with_shape((1, 256)), x.reshape(1, 256)),
    )
    return np.clip(op.reference(*operands).astype(np.int64), *limits)
