"""Fourier transforms of real samples."""

from __future__ import annotations

from typing import ClassVar

from microfold.arithmetic import real_fft
from microfold.ir.op import register, require
from microfold.ir.types import Array, Tensor, TensorType
from microfold.ops.signal.signal_op import SignalOp


class _RealFft(SignalOp, frozen=True):
    """Base of transforms along the last axis. Spectra are pairs of real and imaginary parts."""

    fft_length: int

    @property
    def numbers(self) -> int:
        """Number of elements of a spectrum."""
        return self.fft_length + 2

    def check(self, x: TensorType) -> None:
        fault = real_fft.length_fault(self.fft_length)
        require(not fault, f"{self.name}: fft_length {fault}")
        require(
            x.dtype in real_fft.DTYPES and x.rank > 0,
            f"{self.name}: needs int16, int32 or float32 with an axis; it is {x}",
        )

    def operations(self, x: TensorType) -> int:
        rows = x.size // x.shape[-1]
        return rows * 6 * self.fft_length * self.fft_length.bit_length()


@register
class SignalRfft(_RealFft, frozen=True):
    """Spectra [..., fft_length + 2] of samples [..., n], padded with zeros; see `real_fft`."""

    name: ClassVar[str] = "signal_rfft"

    def infer(self, x: TensorType) -> TensorType:
        self.check(x)
        require(
            x.shape[-1] <= self.fft_length,
            f"{self.name}: fft_length must be at least the number of samples, {x.shape[-1]}; "
            f"it is {self.fft_length}",
        )
        return TensorType(x.dtype, (*x.shape[:-1], self.numbers))

    def reference(self, x: Tensor) -> Array:
        spectra = real_fft.rfft(x.data, self.fft_length, x.type.dtype)
        return spectra.reshape(*x.type.shape[:-1], self.numbers)


@register
class SignalIrfft(_RealFft, frozen=True):
    """Samples [..., fft_length] of spectra [..., fft_length + 2]; see `real_fft`."""

    name: ClassVar[str] = "signal_irfft"

    def infer(self, x: TensorType) -> TensorType:
        self.check(x)
        require(
            x.shape[-1] == self.numbers,
            f"{self.name}: a spectrum must have {self.numbers} elements; it has {x.shape[-1]}",
        )
        return TensorType(x.dtype, (*x.shape[:-1], self.fft_length))

    def reference(self, x: Tensor) -> Array:
        spectra = x.data.reshape(*x.type.shape[:-1], -1, 2)
        return real_fft.irfft(spectra, self.fft_length, x.type.dtype)
