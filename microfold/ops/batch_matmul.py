"""Matrix product of two values that are both computed at run time."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import numerics
from microfold.arithmetic.numerics import Multiplier
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, ElementType, Quant, Tensor, TensorType
from microfold.ops import accumulate
from microfold.ops.elementwise.unary_rule import QUANTIZED, require_per_tensor


@register
class BatchMatmul(Op, frozen=True):
    """Product of ``first [..., M, K]`` and ``second [..., K, N]``: [..., M, N]; leading axes broadcast.

    Attributes:
        transpose_first: whether the first operand is [..., K, M].
        transpose_second: whether the second operand is [..., N, K].
    """

    name: ClassVar[str] = "batch_matmul"
    pattern: ClassVar[Pattern] = Pattern.OUT_ELEMENTWISE_FUSABLE

    transpose_first: bool
    transpose_second: bool
    out: ElementType

    def infer(self, first: TensorType, second: TensorType) -> TensorType:
        require(
            min(first.rank, second.rank) >= 2,
            f"batch_matmul: operands must have rank 2 or more; they are {first} and {second}",
        )
        require(
            first.dtype is second.dtype is self.out.dtype
            and (first.dtype in QUANTIZED or first.dtype.is_float),
            f"batch_matmul: {first.dtype.value} times {second.dtype.value} to {self.out.dtype.value} is not "
            f"supported",
        )
        if first.dtype in QUANTIZED:
            require_per_tensor("batch_matmul", first=first, second=second, output=self.out)
            assert first.quant is not None
            assert second.quant is not None
            # Raises an error if the scales have no multiplier.
            multiplier = self.multiplier(first.quant, second.quant)
            if accumulate.has_wide_sums(first, None):
                accumulate.check_int16_multiplier("batch_matmul", multiplier)
        *first_batch, rows, depth = _swapped(first.shape, self.transpose_first)
        *second_batch, second_depth, columns = _swapped(second.shape, self.transpose_second)
        require(
            depth == second_depth > 0,
            f"batch_matmul: the inner dimensions must agree; they are {depth} and {second_depth}",
        )
        try:
            batch = np.broadcast_shapes(tuple(first_batch), tuple(second_batch))
        except ValueError:
            require(
                False, f"batch_matmul: leading axes must broadcast; they are {first_batch} and {second_batch}"
            )
            raise
        return TensorType(self.out.dtype, (*batch, rows, columns), self.out.quant)

    def multiplier(self, first: Quant, second: Quant) -> Multiplier:
        """Return the multiplier of ``scale_1 * scale_2 / scale_out``."""
        assert self.out.quant is not None
        return numerics.effective_multiplier([first.scale, second.scale], self.out.quant.scale)

    def reference(self, first: Tensor, second: Tensor) -> Array:
        a, b = accumulate.widened(first), accumulate.widened(second)
        a = a.swapaxes(-1, -2) if self.transpose_first else a
        b = b.swapaxes(-1, -2) if self.transpose_second else b
        if first.type.dtype.is_float:
            return np.matmul(a, b).astype(self.out.dtype.numpy)
        assert first.type.quant is not None
        assert second.type.quant is not None
        mantissa, shift = self.multiplier(first.type.quant, second.type.quant)
        acc = accumulate.exact_int(np.matmul(a, b))
        wide = accumulate.has_wide_sums(first.type, None)
        return accumulate.requantize(acc, np.array(mantissa), np.array(shift), self.out, wide=wide)

    def macs(self, first: TensorType, second: TensorType) -> int:
        return self.infer(first, second).size * _swapped(first.shape, self.transpose_first)[-1]


def _swapped(shape: tuple[int, ...], swap: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if swap else shape
