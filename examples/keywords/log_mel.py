"""The features in floating point: what the network is trained on, and what log_mel.c computes in integers.

One column for each 20 ms of sound: the energy of the last 30 ms in 32 mel bands, in octaves above a floor,

    feature = log2(1 + energy / FLOOR)

so that 0 is silence and twice the amplitude is 2 more. FLOOR is a little above what rounding a sound to
16 bits adds; what lies below it carries nothing.
"""

import numpy as np

RATE = 16000  # samples per second
HOP = 320  # samples from column to column: 20 ms
WINDOW = 480  # samples that a column is computed from: 30 ms, the last 10 of them shared with the next column
FFT = 512  # points; the window is padded with zeros
BANDS = 32
COLUMNS = 49  # that the network sees at once: 0.98 s
LOW, HIGH = 125.0, 7500.0  # Hz, the lower end of the first band and the upper end of the last
FLOOR = 256.0  # in squared units of a sample, times the window's gain


def window():
    """The Hann window float64 [WINDOW], sampled between its zeros, so that its sum is just WINDOW / 2."""
    return np.sin(np.pi * (np.arange(WINDOW) + 0.5) / WINDOW) ** 2


def mel(frequency):
    """The mel scale (O'Shaughnessy)."""
    return 1127 * np.log1p(frequency / 700)


def mel_position():
    """Where each bin of the transform lies among the bands: float64 [FFT / 2 + 1].

    The triangle of the first band begins at 0 and has its peak at 1. A bin at 5.25 is a quarter on the way
    from the peak of the fifth band to that of the sixth: 3/4 of its power is the one's, 1/4 the other's.
    """
    frequency = np.arange(FFT // 2 + 1) * RATE / FFT
    return (mel(frequency) - mel(LOW)) / (mel(HIGH) - mel(LOW)) * (BANDS + 1)


def mel_bins():
    """First and last bin, exclusive, that lie between LOW and HIGH."""
    position = mel_position()
    inside = np.flatnonzero((position >= 0) & (position < BANDS + 1))
    return int(inside[0]), int(inside[-1]) + 1


def mel_weights():
    """The triangles: float64 [FFT / 2 + 1, BANDS]."""
    position = mel_position()[:, np.newaxis]
    return np.maximum(0, 1 - np.abs(position - np.arange(1, BANDS + 1)))


_WINDOW = window()
_MEL = mel_weights()


def features(samples):
    """Features float64 [len(samples) // HOP, BANDS] of int16 samples; silence is before the first."""
    count = len(samples) // HOP
    padded = np.concatenate([np.zeros(WINDOW - HOP), samples[: count * HOP]])
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    power = np.abs(np.fft.rfft(frames * _WINDOW, FFT)) ** 2
    return np.log2(1 + power @ _MEL / FLOOR)


def quantize(real, scale, zero_point):
    """Features as the int8 input of a model, rounded as QUANTIZE does: to nearest, ties away from zero."""
    ratio = real / scale
    return np.clip(np.trunc(ratio + np.copysign(0.5, ratio)) + zero_point, -128, 127).astype(np.int8)
