"""Stacking of gate weights: the file has one matrix per gate, operators of the IR a single matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.ir.node import Value
from microfold.ir.types import Array, DType, ElementType, Quant
from microfold.ops.movement.concatenate import Concatenate


def is_present(context: OperatorContext, index: int) -> bool:
    """Return whether the operator has input `index`."""
    return index < context.input_count and context.raw.inputs[index] >= 0


def stacked(context: OperatorContext, indices: Sequence[int], name: str) -> Value:
    """Concatenate inputs along their first axis. Each row of integers keeps its scale.

    Raises:
        Unsupported: types or widths differ, or the model computes integers.
    """
    parts = [context.input(index) for index in indices]
    first = parts[0].type
    if any(part.type.shape[1:] != first.shape[1:] or part.type.dtype is not first.dtype for part in parts):
        types = ", ".join(str(part.type) for part in parts)
        raise Unsupported(f"its {name} must have one type and width; they are {types}")
    if first.dtype is DType.FLOAT32 and any(context.known(index) is None for index in indices):
        (result,) = context.emit(Concatenate(0), *parts, names=[name])
        return result
    arrays = [context.constant(index, name) for index in indices]
    element = ElementType(first.dtype, None if first.rank < 2 else _row_scales(parts, name))
    return context.add_constant(np.concatenate(arrays), name, element)


def stacked_vectors(context: OperatorContext, indices: Sequence[int], name: str) -> tuple[Array, Quant]:
    """Stack constant integer vectors, each with one scale and zero point 0; the scales are along axis 0.

    Raises:
        Unsupported: the vectors are not constant, have another quantisation, or their lengths differ.
    """
    parts = [context.input(index) for index in indices]
    arrays = [context.constant(index, name) for index in indices]
    quants = [part.type.quant for part in parts]
    if len({array.shape for array in arrays}) > 1 or any(array.ndim != 1 for array in arrays):
        raise Unsupported(f"its {name} must be vectors of one length; they are {parts[0].type} and others")
    scales: list[float] = []
    for part, quant in zip(parts, quants, strict=True):
        if quant is None or quant.axis is not None or quant.zero_point:
            raise Unsupported(
                f"its {name} must have one scale and zero point 0 each; {part.name!r} is {part.type}"
            )
        scales.append(quant.scale)
    return np.stack(arrays), Quant(tuple(scales), (0,) * len(scales), 0)


def _row_scales(parts: Sequence[Value], name: str) -> Quant | None:
    quants = [part.type.quant for part in parts]
    if all(quant is None for quant in quants):
        return None
    scales: list[float] = []
    points: list[int] = []
    for part, quant in zip(parts, quants, strict=True):
        if quant is None or quant.axis is not None:
            raise Unsupported(f"its {name} must have one scale each; {part.name!r} does not")
        scales += quant.scales * part.type.shape[0]
        points += quant.zero_points * part.type.shape[0]
    return Quant(tuple(scales), tuple(points), 0)
