"""A quantised product, sum or difference with a constant, read as ``scale * x + shift`` per channel."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.types import Array, DType, TensorType
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.ops.image import refuses_layout
from microfold.ops.movement.pad import Pad
from microfold.ops.pool2d import MaxPool2D

QUANTIZED = (DType.INT8, DType.INT16)
# Operators that may be between an affine node and a product sum.
CARRIERS = (Clip, MaxPool2D, Pad)


class Affine(Struct, frozen=True, eq=False):
    """Function ``scale * x + shift`` of real numbers.

    Attributes:
        operand: index of x among the node's operands.
        scale, shift: float64 [channels] along the last axis.
    """

    operand: int
    scale: Array
    shift: Array

    def then(self, after: Affine) -> Affine:
        """Return the composition: this function first, then `after`."""
        return Affine(self.operand, after.scale * self.scale, after.scale * self.shift + after.shift)

    def inverse(self) -> Affine | None:
        """Return the inverse function, or None if a scale is 0."""
        if not self.scale.all():
            return None
        return Affine(self.operand, 1 / self.scale, -self.shift / self.scale)

    def describe(self) -> str:
        """Describe the function in reasons."""
        parts: list[str] = []
        if not bool((self.scale == 1).all()):
            parts.append(f"scale {_numbers(self.scale)}")
        if self.shift.any():
            parts.append(f"shift {_numbers(self.shift)}")
        return " and ".join(parts) or "scale 1"


def read_affine(node: Node, constants: Mapping[Value, Array]) -> Affine | str | None:
    """Return a node's function, or None if it is no quantised product, sum or difference with a constant.

    Returns:
        A reason if the node is of this kind, but does not have one constant per channel.
    """
    if not isinstance(node.op, Add | Sub | Mul) or node.output.type.dtype not in QUANTIZED or node.epilogue:
        return None
    for operand in (0, 1):
        data, other = node.inputs[operand], node.inputs[1 - operand]
        if data is None or other is None or other not in constants or data in constants:
            continue
        constant = constants[other]
        if data.type.shape != node.output.type.shape or any(n != 1 for n in constant.shape[:-1]):
            return f"{constant.shape} is not one constant per channel"
        channels = node.output.type.shape[-1] if node.output.type.shape else 1
        assert other.type.quant is not None
        real = (constant.astype(np.float64) - other.type.quant.zero_point) * other.type.quant.scale
        real = np.broadcast_to(real.reshape(-1), (channels,))
        one, zero = np.ones(channels), np.zeros(channels)
        if isinstance(node.op, Mul):
            return Affine(operand, real, zero)
        if isinstance(node.op, Add):
            return Affine(operand, one, real)
        return Affine(operand, one, -real) if operand == 0 else Affine(operand, -one, real)
    return None


def carried(op: Op, affine: Affine, old: TensorType, new: TensorType) -> Op | str:
    """Return the operator that has the effect of `op` when it is applied to ``affine(x)``, or the refusal.

    Args:
        old, new: types of x and of affine(x).
    """
    if isinstance(op, Clip):
        return _clip(op, affine)
    rising = bool((affine.scale > 0).all())
    if isinstance(op, MaxPool2D):
        return refuses_layout(op) or (op if rising else "the largest element would not stay the largest")
    if isinstance(op, Pad):
        if op.padding[-1] != (0, 0):
            return "it adds channels"
        assert old.quant is not None and new.quant is not None
        if op.fill != old.quant.zero_point or affine.shift.any():
            return f"its fill {op.fill:g} does not match the padding of the scaled image"
        return replace(op, fill=float(new.quant.zero_point))
    return f"no scale passes {op.name}"


def _clip(op: Clip, affine: Affine) -> Clip | str:
    if not bool((affine.scale > 0).all()):
        return "only positive scales pass it"
    bounds: list[float] = []
    for bound in (op.minimum, op.maximum):
        moved = affine.scale * bound + affine.shift
        if math.isfinite(bound) and not bool((moved == moved[0]).all()):
            return f"its bound {bound:g} would differ between channels"
        bounds.append(float(moved[0]))
    return Clip(bounds[0], bounds[1])


def _numbers(array: Array) -> str:
    low, high = float(array.min()), float(array.max())
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
