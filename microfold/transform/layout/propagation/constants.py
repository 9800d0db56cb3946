"""Reordered constants."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from microfold.ir.node import Value
from microfold.ir.rewrite import GraphBuilder
from microfold.ir.types import Array


def permuted(builder: GraphBuilder, value: Value, order: Array, axis: int) -> Value:
    """Return a constant with reordered slices along an axis, and reordered scales.

    Args:
        order: for each slice of the result, its index in the constant.
    """
    type, array = value.type, builder.constants[value]
    quant = type.quant
    if quant is not None and quant.axis == axis:
        scales = tuple(quant.scales[place] for place in order)
        quant = replace(quant, scales=scales, zero_points=tuple(quant.zero_points[place] for place in order))
    taken = np.ascontiguousarray(np.take(array, order, axis))
    return builder.constant(taken, replace(type, quant=quant), value.name)
