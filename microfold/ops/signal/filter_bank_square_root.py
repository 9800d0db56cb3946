"""Square roots of energies."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp


@register
class SignalFilterBankSquareRoot(SignalOp, frozen=True):
    """Rounded square roots, uint32 [N], of uint64 [N], shifted to the right by an int32 [].

    The root of a number that fits 32 bits is at most 65535, so a few of these roots are rounded down. The
    shift counts modulo 32. Source: ``signal/src/square_root_32.cc`` and ``square_root_64.cc`` of
    tflite-micro.
    """

    name: ClassVar[str] = "signal_filter_bank_square_root"

    def infer(self, x: TensorType, scale_bits: TensorType) -> TensorType:
        require(
            x.dtype is DType.UINT64 and x.rank == 1,
            f"signal_filter_bank_square_root: needs uint64 [N]; it is {x}",
        )
        require(
            scale_bits.dtype is DType.INT32 and scale_bits.rank == 0,
            f"signal_filter_bank_square_root: the shift must be int32 []; it is {scale_bits}",
        )
        return TensorType(DType.UINT32, x.shape)

    def reference(self, x: Tensor, scale_bits: Tensor) -> Array:
        roots = np.array([_rounded_root(number) for number in x.data.tolist()], np.uint32)
        return roots >> np.uint32(int(scale_bits.data) & 31)

    def operations(self, x: TensorType, scale_bits: TensorType) -> int:
        del scale_bits
        return 100 * x.size


def _rounded_root(number: int) -> int:
    root = math.isqrt(number)
    largest = 0xFFFF if number < 1 << 32 else 0xFFFFFFFF
    return root + 1 if number - root * root > root and root != largest else root
