"""Split of the samples into calibration data and held-back data."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from microfold.errors import InputError

# Share of the samples that are held back if there are too few for both numbers.
_HELD_BACK = 0.25


class SampleSplit(Struct, frozen=True):
    """Numbers of samples, in the order of the data."""

    calibration: tuple[int, ...]
    held_back: tuple[int, ...]


def split(count: int, samples: int, held_back: int, seed: int) -> SampleSplit:
    """Draw samples for calibration and, without overlap, for the comparison.

    Args:
        count: number of samples in the data.
        samples, held_back: maximum numbers to draw. If the data have fewer, a quarter is held back.

    Raises:
        InputError: there are fewer than two samples.
    """
    if count < 2:
        raise InputError(
            "the data must have at least 2 samples, for calibration and for the comparison; "
            f"they have {count}: add some hundred samples as the device will see them"
        )
    if count < samples + held_back:
        held_back = min(held_back, max(1, int(count * _HELD_BACK)))
        samples = min(samples, count - held_back)
    order = np.random.default_rng(seed).permutation(count)
    drawn = [
        tuple(sorted(map(int, part))) for part in (order[:samples], order[samples : samples + held_back])
    ]
    return SampleSplit(*drawn)
