"""Two pixels in one word: one 32-bit multiplication takes two products.

A word ``X = x0 + 2^16 * x1`` holds int8 inputs of two pixels. Over a *run* of a few weights,

    S = 2^15 + sum(w * X) = (2^15 + sum(w * x0)) + 2^16 * sum(w * x1)

As long as both sums fit int16 for all inputs, the lower half of S is not negative and ``S >> 16`` is the
second sum. With T the total of all S modulo 2^32, and H that of all ``S >> 16``, ``T - 2^16 * H`` is the
first pixel's sum plus 2^15 for each run: no half is ever extracted by itself. How long runs can be follows
from the weights; two nearly always fit. In longer runs, what is too much of a weight is taken off it, and
multiplied by itself behind the other runs.

Cores whose byte loads do not extend the sign (with an immediate offset) keep weights as ``u = w + 128``.
Their runs start from ``2^15 - 128 * sum(X)``, which is computed once for all channels.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from microfold.ir.types import Array

# Weights of a run, at most.
LONGEST_RUN = 8
# Absolute weights of a run that fits whatever their signs are.
LARGEST_SUM = 255


def pad_segments(matrix: Array, segment: int, multiple: int) -> Array:
    """Zero weights behind each segment, up to a multiple.

    Args:
        matrix: [channels, K], K being segments.

    Returns:
        [channels, segments, padded segment].
    """
    channels, depth = matrix.shape
    segments = matrix.reshape(channels, depth // segment, segment)
    return np.pad(segments, ((0, 0), (0, 0), (0, -segment % multiple)))


def runs_fit(matrix: Array, segment: int, length: int) -> bool:
    """Whether the sums of all runs fit int16, for all int8 inputs.

    Args:
        matrix: int8 weights [channels, K].
        segment: runs do not go on from one to the next.
    """
    runs = pad_segments(matrix, segment, length).astype(np.int64).reshape(-1, length)
    positive = np.maximum(runs, 0).sum(axis=1)
    negative = np.maximum(-runs, 0).sum(axis=1)
    lowest, highest = -128 * positive - 127 * negative, 127 * positive + 128 * negative
    return bool(np.all((lowest >= -(1 << 15)) & (highest < 1 << 15)))


def split_long_runs(matrix: Array, segment: int, length: int) -> tuple[Array, Array]:
    """Weights whose runs all fit, and what was taken off the largest weights of the others.

    Returns:
        int8 [channels, K], and the rests, int8 [channels, K], mostly zero.
    """
    runs = pad_segments(matrix, segment, length).astype(np.int16)
    shape = runs.shape
    runs = runs.reshape(-1, length)
    excess = np.abs(runs).sum(axis=1) - LARGEST_SUM
    while (excess > 0).any():
        where = np.flatnonzero(excess > 0)
        largest = np.abs(runs[where]).argmax(axis=1)
        weights = runs[where, largest]
        runs[where, largest] -= np.sign(weights) * np.minimum(np.abs(weights), excess[where])
        excess = np.abs(runs).sum(axis=1) - LARGEST_SUM
    fitting = runs.reshape(shape)[:, :, :segment].reshape(matrix.shape)
    return fitting.astype(np.int8), (matrix - fitting).astype(np.int8)


def plan_run(
    matrix: Array,
    segment: int,
    product: float,
    run: float,
    rest: float,
    rests: float,
    lengths: range = range(1, LONGEST_RUN + 1),
) -> int:
    """The length of runs with the fewest instructions.

    Args:
        product: instructions of a weight.
        run: instructions of a run, besides its weights.
        rest: instructions of a weight's rest, see `split_long_runs`.
        rests: instructions of a channel where there may be rests.
        lengths: to choose from.
    """
    # Asked for several times for each layer.
    return _plan_run(matrix.tobytes(), matrix.shape, segment, (product, run, rest, rests), lengths)


@lru_cache(maxsize=512)
def _plan_run(
    weights: bytes,
    shape: tuple[int, int],
    segment: int,
    costs: tuple[float, float, float, float],
    lengths: range,
) -> int:
    channels, depth = shape
    matrix: Array = np.frombuffer(weights, np.int8).reshape(shape)
    product, run, rest, rests = costs

    def without_rests(length: int) -> float:
        return depth // segment * -(-segment // length) * (length * product + run)

    def with_rests(length: int, count: int) -> float:
        return without_rests(length) + count / channels * rest + (rests if count else 0)

    def count_rests(length: int) -> int:
        return int(np.count_nonzero(split_long_runs(matrix, segment, length)[1]))

    best = lengths[0]
    lowest = with_rests(best, count_rests(best))
    for length in sorted(lengths[1:], key=without_rests):
        # Looking for rests takes long.
        if with_rests(length, _fewest_rests(matrix, segment, length)) < lowest:
            cost = with_rests(length, count_rests(length))
            if cost < lowest:
                best, lowest = length, cost
    return best


def _fewest_rests(matrix: Array, segment: int, length: int) -> int:
    """A lower bound of the rests: each takes at most 128 off the sum of its run."""
    runs = pad_segments(matrix, segment, length).astype(np.int16).reshape(-1, length)
    excess = np.maximum(np.abs(runs).sum(axis=1) - LARGEST_SUM, 0)
    return int((-(-excess // 128)).sum())


def pack_runs(matrix: Array, segment: int, length: int, *, unsigned: bool) -> Array:
    """Weights in reading order, each segment padded to whole runs: int8, or uint8 with 128 added."""
    padded = pad_segments(matrix, segment, length).reshape(matrix.shape[0], -1).astype(np.int16)
    return (padded + 128).astype(np.uint8) if unsigned else padded.astype(np.int8)


def unpack_runs(packed: Array, segment: int, length: int) -> Array:
    """Inverse of `pack_runs`: int8 [channels, K]."""
    wide = packed.astype(np.int16) - (128 if packed.dtype == np.uint8 else 0)
    padded = -(-segment // length) * length
    segments = wide.reshape(packed.shape[0], -1, padded)[:, :, :segment]
    return segments.reshape(packed.shape[0], -1).astype(np.int8)


def word_indices(segment: int, length: int, runs: int, header: int) -> Array:
    """Where the words of each input are in a patch of two pairs, int64 [K].

    Args:
        runs: of all segments.
        header: words in front of each run.
    """
    of_segment = -(-segment // length)
    k = np.arange(segment)
    places = k // length * (2 * length + header) + header + 2 * (k % length)
    starts = np.arange(runs // of_segment) * of_segment * (2 * length + header)
    return (starts[:, None] + places).reshape(-1)


def pack_rests(rests: Array, places: Array) -> Array:
    """int16: of each channel how many rests it has, and of each its place in the patch and its weight.

    Args:
        rests: int8 [channels, K].
        places: see `word_indices`.
    """
    packed: list[int] = []
    for weights in rests:
        (where,) = np.nonzero(weights)
        packed += [where.size, *np.stack([places[where], weights[where]], axis=1).reshape(-1).tolist()]
    return np.array(packed, np.int16)
