"""Two pixels in one word: layouts, and the arithmetic of the inner loops."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.kernels.packing import two_pixels_per_word


def _weights(channels: int, depth: int, largest: int = 127, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-largest, largest + 1, (channels, depth)).astype(np.int8)


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize(
    ("depth", "segment", "length"), [(8, 8, 2), (27, 9, 4), (7, 7, 3), (6, 1, 5), (5, 5, 8)]
)
def test_runs_round_trip(depth: int, segment: int, length: int, unsigned: bool) -> None:
    matrix = _weights(3, depth)
    packed = two_pixels_per_word.pack_runs(matrix, segment, length, unsigned=unsigned)
    assert packed.shape[1] == depth // segment * -(-segment // length) * length
    assert np.array_equal(two_pixels_per_word.unpack_runs(packed, segment, length), matrix)


def test_what_fits() -> None:
    def fits(*weights: int) -> bool:
        return two_pixels_per_word.runs_fit(np.array([weights], np.int8), len(weights), len(weights))

    assert fits(127, -127, 0, 1)
    assert not fits(127, -127, 3, 1)
    assert fits(127, 127)
    assert fits(-128)
    assert not fits(-128, -128)


@pytest.mark.parametrize("length", range(1, 9))
@pytest.mark.parametrize("largest", [20, 127])
def test_split_runs_fit_and_add_up(length: int, largest: int) -> None:
    matrix = _weights(5, 36, largest, length)
    matrix[0, :6] = -128
    fitting, rests = two_pixels_per_word.split_long_runs(matrix, 12, length)
    assert two_pixels_per_word.runs_fit(fitting, 12, length)
    assert np.array_equal(fitting.astype(int) + rests, matrix)
    assert not (rests[np.abs(matrix.astype(int)).max(axis=1) <= 255 // length]).any()


def test_the_longest_run_that_pays() -> None:
    assert two_pixels_per_word.plan_run(_weights(4, 48, 20), 48, 4, 4, 15, 4) == 8
    assert two_pixels_per_word.plan_run(np.full((4, 48), 127, np.int8), 48, 4, 4, 15, 4) == 2


@pytest.mark.parametrize(("header", "unsigned"), [(0, False), (2, True)])
@pytest.mark.parametrize("saturated", [False, True])
def test_arithmetic_of_the_inner_loop(header: int, unsigned: bool, saturated: bool) -> None:
    """What the C does, in 32 bits, against plain sums, for pixels of all kinds."""
    rng = np.random.default_rng(1)
    segment, length = 9, 4
    matrix = _weights(6, 27)
    x = rng.choice([-128, 127], (2, 27)) if saturated else rng.integers(-128, 128, (2, 27))
    fitting, rests = two_pixels_per_word.split_long_runs(matrix, segment, length)
    packed = two_pixels_per_word.pack_runs(fitting, segment, length, unsigned=unsigned).astype(np.int64)
    runs = packed.shape[1] // length
    patch = np.zeros(runs * (2 * length + header), np.int64)
    places = two_pixels_per_word.word_indices(segment, length, runs, header)
    patch[places] = x[0] + 65536 * x[1]
    words = patch.reshape(runs, -1)[:, header::2]
    starts = 0x8000 - (128 * words.sum(axis=1) if unsigned else 0)
    listed = iter(two_pixels_per_word.pack_remainders(rests, places).tolist())
    for channel in range(matrix.shape[0]):
        sums = (starts + (packed[channel].reshape(runs, length) * words).sum(axis=1)).astype(np.int32)
        high = int((sums.astype(np.int64) >> 16).sum())
        both = int(sums.astype(np.int64).sum()) - (runs << 15)
        for _ in range(next(listed)):
            product = int(patch[next(listed)]) * next(listed)
            high += (product + 0x8000) >> 16
            both += product
        first = int(np.array([both - (high << 16)]).astype(np.int32)[0])
        assert [first, high] == (x @ matrix[channel].astype(np.int64)).tolist()
