"""Operators on complex numbers: float32 with a last axis of two, for real and imaginary part."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.arithmetic import real_fft
from microfold.ir.op import register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp

PARTS = 2


def _check_complex(op: str, x: TensorType) -> None:
    require(
        x.dtype is DType.FLOAT32 and x.rank > 0 and x.shape[-1] == PARTS,
        f"{op}: needs float32 with a last axis of {PARTS}, real and imaginary part; it is {x}",
    )


@register
class ComplexAbs(SignalOp, frozen=True):
    """Magnitudes [...] of complex numbers [..., 2], also if their squares overflow float32."""

    name: ClassVar[str] = "complex_abs"

    def infer(self, x: TensorType) -> TensorType:
        _check_complex(self.name, x)
        return TensorType(x.dtype, x.shape[:-1])

    def reference(self, x: Tensor) -> Array:
        return np.asarray(np.hypot(x.data[..., 0], x.data[..., 1]), np.float32)


@register
class ComplexFft(SignalOp, frozen=True):
    """Unscaled Fourier transforms of complex numbers [..., points, 2] along the points; see `real_fft`."""

    name: ClassVar[str] = "complex_fft"

    def infer(self, x: TensorType) -> TensorType:
        _check_complex(self.name, x)
        require(x.rank >= 2, f"{self.name}: needs an axis of points; it is {x}")
        fault = real_fft.points_fault(x.shape[-2])
        require(not fault, f"{self.name}: the number of points {fault}")
        return x

    def operations(self, x: TensorType) -> int:
        return 6 * x.size * x.shape[-2].bit_length()

    def reference(self, x: Tensor) -> Array:
        return real_fft.complex_fft(x.data, False, x.type.dtype)
