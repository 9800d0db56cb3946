"""Weight layouts: what is unpacked is what was packed, and the sums come out."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.kernels import packing


def random_weights(channels: int, depth: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-127, 128, (channels, depth)).astype(np.int8)


def test_pair_order_is_that_of_widened_words() -> None:
    assert packing.pair_order(4).tolist() == [[0, 2], [1, 3]]
    assert packing.pair_order(7).tolist() == [[0, 2], [1, 3], [4, 5], [6, -1]]
    assert packing.pair_order(1).tolist() == [[0, -1]]


@pytest.mark.parametrize(("depth", "segment"), [(8, 8), (27, 9), (7, 7), (6, 1), (20, 10)])
def test_pairs_round_trip(depth: int, segment: int) -> None:
    matrix = random_weights(3, depth)
    lanes = packing.pair_lanes(matrix, segment)
    assert lanes.shape[2] == 2
    assert np.array_equal(packing.unpair_lanes(lanes, segment), matrix)


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_words_round_trip(channels: int) -> None:
    lanes = packing.pair_lanes(random_weights(channels, 10), 10)
    dual = packing.unpack_dual_lane(packing.pack_dual_lane(lanes))
    wide = packing.unpack_int16(packing.pack_int16(256 * lanes.astype(np.int64)))
    assert np.array_equal(dual[:channels], lanes)
    assert np.array_equal(wide[:channels], 256 * lanes.astype(np.int64))
    assert not dual[channels:].any()
    assert not wide[channels:].any()


def test_dual_lanes_hold_both_sums() -> None:
    """The kernel's arithmetic, modulo 2^32."""
    matrix, x = random_weights(2, 500), random_weights(1, 500, 1)[0].astype(np.int64)
    bias = np.array([123456, -98765], np.int32)
    lanes = packing.pair_lanes(matrix, 500)
    halves = packing.pack_dual_lane(lanes)[..., None].view(np.int16).astype(np.int64)
    start = packing.dual_lane_biases(bias).astype(np.int64)
    widened = packing.pair_lanes(x[None], 500)[0]
    first = int(start[0]) + int((halves[0].astype(np.int8).astype(np.int64) * widened).sum())
    both = int(start[1]) + int((halves[0] * widened).sum())
    second = np.array([both - first]).astype(np.int32)[0] >> 8
    expected = matrix.astype(np.int64) @ x + bias
    assert (first, int(second)) == tuple(expected.tolist())


def bounds(*values: int) -> tuple[np.ndarray, np.ndarray]:
    return -np.array(values), np.array(values)


def test_dual_lanes_need_room() -> None:
    matrix = np.array([[-1, 5], [-127, 5]], np.int8)
    limit = packing.DUAL_LANE_LIMIT
    assert packing.fits_dual_lane(matrix, bounds(10 * limit, limit - 1))
    assert not packing.fits_dual_lane(matrix, bounds(0, limit))
    assert packing.fits_dual_lane(matrix[:1], bounds(10 * limit))
    # -1 - 128 * 256 is less than int16 holds.
    assert not packing.fits_dual_lane(np.array([[-1, 5], [-128, 5]], np.int8), bounds(9, 9))
