"""Weight layouts: what is unpacked is what was packed, and the sums come out."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.kernels.packing import smlad
from microfold.kernels.requantize.pre_shifted_accumulator import (
    SmladRequantization,
    plan_smlad_requantization,
)


def random_weights(channels: int, depth: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-127, 128, (channels, depth)).astype(np.int8)


def test_pair_order_is_that_of_widened_words() -> None:
    assert smlad.pair_order(4).tolist() == [[0, 2], [1, 3]]
    assert smlad.pair_order(7).tolist() == [[0, 2], [1, 3], [4, 5], [6, -1]]
    assert smlad.pair_order(1).tolist() == [[0, -1]]


@pytest.mark.parametrize(("depth", "segment"), [(8, 8), (27, 9), (7, 7), (6, 1), (20, 10)])
def test_pairs_round_trip(depth: int, segment: int) -> None:
    matrix = random_weights(3, depth)
    lanes = smlad.pair_lanes(matrix, segment)
    assert lanes.shape[2] == 2
    assert np.array_equal(smlad.unpair_lanes(lanes, segment), matrix)


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_words_round_trip(channels: int) -> None:
    lanes = smlad.pair_lanes(random_weights(channels, 10), 10)
    paired = smlad.unpack_paired(smlad.pack_paired(lanes))
    wide = smlad.unpack_int16(smlad.pack_int16(256 * lanes.astype(np.int64)))
    assert np.array_equal(paired[:channels], lanes)
    assert np.array_equal(wide[:channels], 256 * lanes.astype(np.int64))
    assert not paired[channels:].any()
    assert not wide[channels:].any()


def test_paired_lanes_hold_both_sums() -> None:
    """The kernel's arithmetic, modulo 2^32."""
    matrix, x = random_weights(2, 500), random_weights(1, 500, 1)[0].astype(np.int64)
    bias = np.array([123456, -98765], np.int32)
    lanes = smlad.pair_lanes(matrix, 500)
    halves = smlad.pack_paired(lanes)[..., None].view(np.int16).astype(np.int64)
    start = smlad.paired_biases(bias).astype(np.int64)
    widened = smlad.pair_lanes(x[None], 500)[0]
    first = int(start[0]) + int((halves[0].astype(np.int8).astype(np.int64) * widened).sum())
    both = int(start[1]) + int((halves[0] * widened).sum())
    second = np.array([both - first]).astype(np.int32)[0] >> 8
    expected = matrix.astype(np.int64) @ x + bias
    assert (first, int(second)) == tuple(expected.tolist())


def bounds(*values: int) -> tuple[np.ndarray, np.ndarray]:
    return -np.array(values), np.array(values)


def test_paired_lanes_need_room() -> None:
    matrix = np.array([[-1, 5], [-127, 5]], np.int8)
    limit = smlad.PAIRED_LIMIT
    assert smlad.fits_paired(matrix, bounds(10 * limit, limit - 1))
    assert not smlad.fits_paired(matrix, bounds(0, limit))
    assert smlad.fits_paired(matrix[:1], bounds(10 * limit))
    # -1 - 128 * 256 is less than int16 holds.
    assert not smlad.fits_paired(np.array([[-1, 5], [-128, 5]], np.int8), bounds(9, 9))


@pytest.mark.parametrize("channels", [1, 2, 3, 6, 7])
def test_every_channel_is_in_a_pair(channels: int) -> None:
    pairs = smlad.pair_channels(channels)
    assert set(pairs.reshape(-1).tolist()) == set(range(channels))
    assert len(pairs) == -(-channels // 2)
    assert channels == 1 or all(second == first + 1 for first, second in pairs.tolist())


def planned(channels: int, depth: int, low: int) -> tuple[np.ndarray, SmladRequantization]:
    matrix = random_weights(channels, depth)
    bias = np.arange(channels, dtype=np.int64) * 1000 - 2000
    limit = 128 * np.abs(matrix.astype(np.int64)).sum(axis=1) + np.abs(bias)
    multipliers = np.full(channels, 1 << 30, np.int64) + 12345, np.arange(channels) % 3 - 9
    return matrix, plan_smlad_requantization(
        matrix, bias, (-limit, limit), multipliers, -5, (low, 127), common=True
    )


@pytest.mark.parametrize("low", [-128, -5])
@pytest.mark.parametrize("kind", ["paired", "int16"])
def test_stream(kind: str, low: int) -> None:
    """Biases, weights, and what the inner loop requantises with, of every two channels."""
    matrix, plan = planned(6, 10, low)
    lanes = smlad.pair_lanes(matrix, 10)
    stream = smlad.smlad_stream(kind, lanes, plan)
    assert plan.shift > 0
    pairs = lanes.shape[1]
    words = stream[:, 2 : 2 + (pairs if kind == "paired" else 2 * pairs)]
    rest = stream[:, 2 + words.shape[1] :].reshape(3, 2, -1)
    left = plan.left.reshape(3, 2)
    assert np.array_equal(rest[..., 0], plan.records[:, 1].reshape(3, 2))
    assert np.array_equal(rest[..., 1], plan.records[:, 2].reshape(3, 2))
    if kind == "paired":
        assert np.array_equal(smlad.unpack_paired(words), lanes)
        assert np.array_equal(stream[:, 1] - stream[:, 0], 256 * plan.records[1::2, 0])
        # The second sum is 8 bits up already.
        assert np.array_equal(rest[..., 2], np.stack([left[:, 0], 8 - left[:, 1]], axis=1))
    else:
        unpacked = smlad.unpack_int16(words.reshape(3, pairs, 2))
        assert np.array_equal(unpacked, lanes.astype(np.int64) << plan.left[:, None, None])
        assert np.array_equal(stream[:, :2].reshape(-1), plan.records[:, 0] << plan.left)
    corrected = low < -5
    assert rest.shape[2] == 2 + (kind == "paired") + corrected
    if corrected:
        assert np.array_equal(rest[..., -1], 1 << (left - 1))


@pytest.mark.parametrize("kind", ["paired", "int16"])
def test_stream_of_two_words(kind: str) -> None:
    matrix, _ = planned(6, 10, -128)
    lanes = smlad.pair_lanes(matrix, 10)
    records = np.arange(12, dtype=np.int32).reshape(6, 2)
    stream = smlad.packed_stream(kind, lanes, records)
    assert np.array_equal(stream[:, [0, 1, -2, -1]], records.reshape(3, 2, 2).swapaxes(1, 2).reshape(3, 4))
    words = stream[:, 2:-2]
    if kind == "paired":
        assert np.array_equal(smlad.unpack_paired(words), lanes)
    else:
        assert np.array_equal(smlad.unpack_int16(words.reshape(3, -1, 2)), lanes)
