"""Fourier transforms of real samples, bit-exact with TensorFlow Lite for Microcontrollers.

A transform of n real samples is a transform of n / 2 complex numbers, followed by a step that separates the
two halves. The samples with even indices are the real parts. In fixed point, each stage divides by its radix,
rounded, before it multiplies. Products are rounded to the type; sums wrap around.

Sources: https://github.com/mborgerding/kissfft/blob/v130/kiss_fft.c, _kiss_fft_guts.h (fixed point) and
tools/kiss_fftr.c (real samples). Types: https://github.com/tensorflow/tflite-micro/tree/main/signal/src
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from microfold.ir.types import Array, DType

DTYPES = (DType.INT16, DType.INT32, DType.FLOAT32)
RADICES = (4, 2, 3, 5)
MAX_LENGTH = 1 << 16  # indices of its numbers fit 16 bits


class Stage(Struct, frozen=True):
    """Pass over all numbers that combines transforms of `size` numbers to transforms of `radix * size`.

    Attributes:
        stride: distance between the twiddle factors of neighbouring numbers of a transform.
    """

    radix: int
    size: int
    stride: int


def length_fault(length: int) -> str:
    """Return the reason why there is no transform of `length` real samples, or "" if there is one."""
    if length % 2 or points_fault(length // 2):
        return f"must be twice a product of 2, 3 and 5, at most {MAX_LENGTH}; it is {length}"
    return ""


def points_fault(points: int) -> str:
    """Return the reason why there is no transform of `points` complex numbers, or "" if there is one."""
    rest = points
    for radix in RADICES:
        while rest > 0 and rest % radix == 0:
            rest //= radix
    if points < 2 or points > MAX_LENGTH // 2 or rest != 1:
        return f"must be a product of 2, 3 and 5, at most {MAX_LENGTH // 2}; it is {points}"
    return ""


def stages(points: int) -> tuple[Stage, ...]:
    """Return the stages of a transform of `points` complex numbers, in order of execution."""
    found: list[Stage] = []
    stride, rest = 1, points
    for radix in RADICES:
        while rest % radix == 0:
            rest //= radix
            found.append(Stage(radix, rest, stride))
            stride *= radix
    return tuple(reversed(found))


def order(points: int) -> Array:
    """Return the index of the number at each position of the first stage's input, int64 [points]."""
    result = np.zeros(1, np.int64)
    for stage in stages(points):
        result = (np.arange(stage.radix)[:, None] * stage.stride + result).reshape(-1)
    return result


def twiddles(points: int, inverse: bool, dtype: DType) -> Array:
    """Return ``exp(-2 pi i k / points)`` for k in [0, points), as [points, 2] of the type.

    Args:
        inverse: use the opposite sign.
    """
    sign = 1 if inverse else -1
    return _units([sign * 2 * math.pi * k / points for k in range(points)], dtype)


def last_twiddles(points: int, inverse: bool, dtype: DType) -> Array:
    """Return ``exp(-pi i (k / points + 1/2))`` for k in [1, points / 2], used for real samples."""
    sign = 1 if inverse else -1
    angles = [sign * math.pi * ((k + 1) / points + 0.5) for k in range(points // 2)]
    return _units(angles, dtype)


def _units(angles: list[float], dtype: DType) -> Array:
    """Return complex numbers of magnitude 1, [angles, 2]."""
    parts = np.array([(math.cos(angle), math.sin(angle)) for angle in angles]).reshape(-1, 2)
    if dtype.is_float:
        return parts.astype(np.float32)
    return np.floor(parts * dtype.range[1] + 0.5).astype(dtype.numpy)


class _Fixed:
    """int16 or int32 arithmetic in int64 arrays, whose last axis holds real and imaginary parts."""

    def __init__(self, dtype: DType):
        self.dtype = dtype
        self.bits = 8 * dtype.itemsize - 1

    def wrap(self, x: Array) -> Array:
        return x.astype(self.dtype.numpy).astype(np.int64)

    def rounded(self, x: Array) -> Array:
        """Return a product rounded to the type; one factor has as many fractional bits as the type."""
        return self.wrap((x + (1 << (self.bits - 1))) >> self.bits)

    def divide(self, x: Array, by: int) -> Array:
        return self.rounded(x * (self.dtype.range[1] // by))

    def half(self, x: Array) -> Array:
        # In C, the sum of two int16 fits an int, but the sum of two int32 wraps around.
        return (self.wrap(x) if self.dtype is DType.INT32 else x) >> 1

    def by_length(self, x: Array, length: int) -> Array:
        del length
        return x


class _Float:
    """float32 arithmetic with the interface of `_Fixed`; without scaling."""

    def wrap(self, x: Array) -> Array:
        return x

    def rounded(self, x: Array) -> Array:
        return x

    def divide(self, x: Array, by: int) -> Array:
        del by
        return x

    def half(self, x: Array) -> Array:
        return x * np.float32(0.5)

    def by_length(self, x: Array, length: int) -> Array:
        return x / np.float32(length)


_Arithmetic = _Fixed | _Float


def _arithmetic(dtype: DType) -> _Arithmetic:
    return _Float() if dtype.is_float else _Fixed(dtype)


def _wide(x: Array) -> Array:
    return x if x.dtype == np.float32 else x.astype(np.int64)


def _multiply(a: Array, b: Array, number: _Arithmetic) -> Array:
    """Return complex products; b has magnitude 1."""
    real = a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1]
    imaginary = a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]
    return number.rounded(np.stack([real, imaginary], axis=-1))


def _turned(x: Array) -> Array:
    """Return x times -i."""
    return np.stack([x[..., 1], -x[..., 0]], axis=-1)


def _conjugate(x: Array, number: _Arithmetic) -> Array:
    return np.stack([x[..., 0], number.wrap(-x[..., 1])], axis=-1)


def complex_fft(x: Array, inverse: bool, dtype: DType) -> Array:
    """Compute transforms along the second-to-last axis.

    Args:
        x: [..., points, 2], float32, or int64 with values that fit the type.
    """
    points = x.shape[-2]
    number, table = _arithmetic(dtype), _wide(twiddles(points, inverse, dtype))
    x = x[..., order(points), :]
    for stage in stages(points):
        parts = number.divide(x.reshape(*x.shape[:-2], -1, stage.radix, stage.size, 2), stage.radix)
        steps = np.arange(stage.radix)[:, None] * np.arange(stage.size) * stage.stride
        turned = _multiply(parts[..., 1:, :, :], table[steps[1:]], number)
        inner = [parts[..., 0, :, :], *np.moveaxis(turned, -3, 0)]
        # Roots of unity of this radix.
        roots = table[np.arange(stage.radix) * stage.size * stage.stride]
        outer = _BUTTERFLIES[stage.radix](inner, roots, inverse, number)
        x = number.wrap(np.stack(outer, axis=-3)).reshape(x.shape)
    return x


def _radix_2(x: list[Array], roots: Array, inverse: bool, number: _Arithmetic) -> list[Array]:
    del roots, inverse, number
    return [x[0] + x[1], x[0] - x[1]]


def _radix_4(x: list[Array], roots: Array, inverse: bool, number: _Arithmetic) -> list[Array]:
    del roots, number
    even, odd = x[0] + x[2], x[0] - x[2]
    total, difference = x[1] + x[3], _turned(x[1] - x[3])
    if inverse:
        difference = -difference
    return [even + total, odd + difference, even - total, odd - difference]


def _radix_3(x: list[Array], roots: Array, inverse: bool, number: _Arithmetic) -> list[Array]:
    del inverse
    total = x[1] + x[2]
    middle = x[0] - number.half(total)
    turned = _turned(number.rounded((x[1] - x[2]) * roots[1, 1]))
    return [x[0] + total, middle - turned, middle + turned]


def _radix_5(x: list[Array], roots: Array, inverse: bool, number: _Arithmetic) -> list[Array]:
    del inverse
    near, far = x[1] + x[4], x[2] + x[3]
    near_difference, far_difference = x[1] - x[4], x[2] - x[3]

    def product(sum_: Array, root: int, part: int) -> Array:
        return number.rounded(sum_ * roots[root, part])

    outer = x[0] + product(near, 1, 0) + product(far, 2, 0)
    inner = x[0] + product(near, 2, 0) + product(far, 1, 0)
    outer_turn = _turned(product(near_difference, 1, 1) + product(far_difference, 2, 1))
    inner_turn = _turned(product(far_difference, 1, 1) - product(near_difference, 2, 1))
    return [x[0] + near + far, outer - outer_turn, inner + inner_turn, inner - inner_turn, outer + outer_turn]


_BUTTERFLIES = {2: _radix_2, 3: _radix_3, 4: _radix_4, 5: _radix_5}


def rfft(x: Array, length: int, dtype: DType) -> Array:
    """Return the spectra of real samples, padded with zeros to the transform's length.

    Args:
        x: [..., samples] of the type.

    Returns:
        [..., length / 2 + 1, 2].
    """
    points, number = length // 2, _arithmetic(dtype)
    padded = np.concatenate([x, np.zeros((*x.shape[:-1], length - x.shape[-1]), x.dtype)], axis=-1)
    spectrum = complex_fft(_wide(padded).reshape(*x.shape[:-1], points, 2), False, dtype)
    result = np.zeros((*x.shape[:-1], points + 1, 2), spectrum.dtype)
    ends = number.divide(spectrum[..., 0, :], 2)
    result[..., 0, 0] = ends[..., 0] + ends[..., 1]
    result[..., points, 0] = ends[..., 0] - ends[..., 1]
    low = np.arange(1, points // 2 + 1)
    first = number.divide(spectrum[..., low, :], 2)
    second = number.divide(_conjugate(spectrum[..., points - low, :], number), 2)
    both = first + second
    turned = _multiply(first - second, _wide(last_twiddles(points, False, dtype)), number)
    result[..., low, :] = number.half(both + turned)
    # In the middle, both indices are equal and this value counts.
    result[..., points - low, 0] = number.half(both[..., 0] - turned[..., 0])
    result[..., points - low, 1] = number.half(turned[..., 1] - both[..., 1])
    return number.wrap(result).astype(dtype.numpy)


def irfft(x: Array, length: int, dtype: DType) -> Array:
    """Return the real samples of spectra.

    Args:
        x: [..., length / 2 + 1, 2] of the type.

    Returns:
        [..., length].
    """
    points, number = length // 2, _arithmetic(dtype)
    spectrum = _wide(x)
    halves = np.empty((*x.shape[:-2], points, 2), spectrum.dtype)
    first, last = spectrum[..., 0, 0], spectrum[..., points, 0]
    ends = number.wrap(np.stack([first + last, first - last], axis=-1))
    halves[..., 0, :] = number.divide(ends, 2)
    low = np.arange(1, points // 2 + 1)
    near = number.divide(spectrum[..., low, :], 2)
    far = number.divide(_conjugate(spectrum[..., points - low, :], number), 2)
    both = near + far
    turned = _multiply(near - far, _wide(last_twiddles(points, True, dtype)), number)
    halves[..., low, :] = number.wrap(both + turned)
    halves[..., points - low, :] = _conjugate(number.wrap(both - turned), number)
    samples = complex_fft(halves, True, dtype).reshape(*x.shape[:-2], length)
    return number.by_length(samples, length).astype(dtype.numpy)
