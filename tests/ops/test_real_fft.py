"""Transforms of real samples against those of numpy, and the tables that they need."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.arithmetic import real_fft
from microfold.ir.types import Array, DType

LENGTHS = (4, 6, 8, 10, 16, 30, 60, 150, 256, 480)


@pytest.mark.parametrize("length", LENGTHS)
def test_float(length: int) -> None:
    samples = np.random.default_rng(length).normal(0, 1, (3, length)).astype(np.float32)
    spectra = real_fft.rfft(samples, length, DType.FLOAT32)
    expected = np.fft.rfft(samples)
    np.testing.assert_allclose(spectra[..., 0] + 1j * spectra[..., 1], expected, atol=1e-5 * length)
    np.testing.assert_allclose(real_fft.irfft(spectra, length, DType.FLOAT32), samples, atol=1e-5)


@pytest.mark.parametrize("dtype", [DType.INT16, DType.INT32])
@pytest.mark.parametrize("length", LENGTHS)
def test_fixed_point(length: int, dtype: DType) -> None:
    """A spectrum is that of the samples' mean: divided by the length; the way back adds nothing to that."""
    limit = dtype.range[1]
    samples = np.random.default_rng(length).integers(-limit // 2, limit // 2, (3, length))
    spectra = real_fft.rfft(samples.astype(dtype.numpy), length, dtype)
    assert spectra.dtype == dtype.numpy
    expected = np.fft.rfft(samples) / length
    units = 2 * len(real_fft.stages(length // 2)) + 2
    assert np.abs(spectra[..., 0] + 1j * spectra[..., 1] - expected).max() < units
    back = real_fft.irfft(spectra, length, dtype)
    assert np.abs(back - np.fft.irfft(expected)).max() < units


def test_zeros_follow_the_samples() -> None:
    samples = np.random.default_rng(0).integers(-9999, 9999, 20).astype(np.int16)
    padded = np.concatenate([samples, np.zeros(12, np.int16)])
    short, long = (real_fft.rfft(x, 32, DType.INT16) for x in (samples, padded))
    np.testing.assert_array_equal(short, long)


@pytest.mark.parametrize("points", [2, 3, 8, 12, 90, 128])
def test_stages_fit_one_another(points: int) -> None:
    size = 1
    for stage in real_fft.stages(points):
        assert (stage.size, stage.stride) == (size, points // (size * stage.radix))
        size *= stage.radix
    assert size == points
    assert sorted(real_fft.order(points)) == list(range(points))


@pytest.mark.parametrize("length", [-2, 0, 1, 2, 3, 7, 14, 15, 22, 1 << 17])
def test_lengths_without_a_transform(length: int) -> None:
    assert "must be twice a product of 2, 3 and 5" in real_fft.length_fault(length)


@pytest.mark.parametrize("length", [*LENGTHS, 1 << 16])
def test_lengths_with_a_transform(length: int) -> None:
    assert real_fft.length_fault(length) == ""


@pytest.mark.parametrize("radix", real_fft.RADICES)
@pytest.mark.parametrize("dtype", [DType.INT16, DType.INT32])
def test_a_twiddle_factor_of_one_changes_nothing(dtype: DType, radix: int) -> None:
    """Behind a division by the radix: kernels' first stages leave the product out."""
    low, high = dtype.range
    numbers = np.arange(low, high + 1) if dtype is DType.INT16 else np.linspace(low, high, 1 << 16)
    edges = [low, low + 1, -high // 2, -1, 0, 1, high // 2, high // 2 + 1, high - 1, high]
    bits = 8 * dtype.itemsize - 1

    def rounded(products: Array) -> Array:
        return (products + (1 << (bits - 1))) >> bits

    divided = rounded(np.concatenate([numbers.astype(np.int64), edges]) * (high // radix))
    np.testing.assert_array_equal(rounded(divided * high), divided)
