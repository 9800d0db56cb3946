"""Two pixels in one word, so that one 32-bit multiplication computes two products.

A word ``X = x0 + 2^16 * x1`` has int8 inputs of two pixels. Over a *run* of a few weights,

    S = 2^15 + sum(w * X) = (2^15 + sum(w * x0)) + 2^16 * sum(w * x1)

If both sums fit int16 for all inputs, the lower half of S is not negative and ``S >> 16`` is the second sum.
Let T be the total of all S modulo 2^32, and H the total of all ``S >> 16``. Then ``T - 2^16 * H`` is the
first pixel's sum plus 2^15 for each run, so that no half has to be extracted.

The weights determine how long runs can be; runs of two weights nearly always fit. In longer runs, the excess
of a large weight is subtracted from it. This remainder (`rests`) is multiplied separately after the runs.

Cores whose byte loads with an immediate offset do not extend the sign store weights as ``u = w + 128``.
Their runs start from ``2^15 - 128 * sum(X)``, which is computed once for all channels.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from microfold.ir.types import Array

# Maximum number of weights in a run.
LONGEST_RUN = 8
# Largest sum of absolute weights with which a run fits for any signs.
LARGEST_SUM = 255


def pad_segments(matrix: Array, segment: int, multiple: int) -> Array:
    """Pad each segment with zero weights to a multiple.

    Args:
        matrix: weights [channels, K]; K consists of segments.

    Returns:
        Weights [channels, segments, padded segment].
    """
    channels, depth = matrix.shape
    segments = matrix.reshape(channels, depth // segment, segment)
    return np.pad(segments, ((0, 0), (0, 0), (0, -segment % multiple)))


def runs_fit(matrix: Array, segment: int, length: int) -> bool:
    """Return whether the sums of all runs fit int16, for all int8 inputs.

    Args:
        matrix: int8 weights [channels, K].
        segment: weights of a segment. A run does not continue in the next segment.
    """
    runs = pad_segments(matrix, segment, length).astype(np.int64).reshape(-1, length)
    positive = np.maximum(runs, 0).sum(axis=1)
    negative = np.maximum(-runs, 0).sum(axis=1)
    lowest, highest = -128 * positive - 127 * negative, 127 * positive + 128 * negative
    return bool(np.all((lowest >= -(1 << 15)) & (highest < 1 << 15)))


def split_long_runs(matrix: Array, segment: int, length: int) -> tuple[Array, Array]:
    """Split weights into a part whose runs all fit, and the remainders of the largest weights.

    Returns:
        The fitting part and the remainders, both int8 [channels, K]. Most remainders are 0.
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
    """Return the run length with the fewest instructions.

    Args:
        product: instructions of a weight.
        run: instructions of a run, in addition to its weights.
        rest: instructions of a weight's remainder, see `split_long_runs`.
        rests: additional instructions of a channel if the layer has remainders.
        lengths: candidate lengths.
    """
    # The result is cached, because callers ask several times for each layer.
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
        # The exact number of remainders is slow to compute, so a lower bound is tried first.
        if with_rests(length, _fewest_rests(matrix, segment, length)) < lowest:
            cost = with_rests(length, count_rests(length))
            if cost < lowest:
                best, lowest = length, cost
    return best


def _fewest_rests(matrix: Array, segment: int, length: int) -> int:
    """Return a lower bound of the number of remainders: each reduces the sum of its run by at most 128."""
    runs = pad_segments(matrix, segment, length).astype(np.int16).reshape(-1, length)
    excess = np.maximum(np.abs(runs).sum(axis=1) - LARGEST_SUM, 0)
    return int((-(-excess // 128)).sum())


def pack_runs(matrix: Array, segment: int, length: int, *, unsigned: bool) -> Array:
    """Pack weights in reading order, with each segment padded to whole runs.

    Returns:
        int8 [channels, padded K], or uint8 with 128 added if `unsigned`.
    """
    padded = pad_segments(matrix, segment, length).reshape(matrix.shape[0], -1).astype(np.int16)
    return (padded + 128).astype(np.uint8) if unsigned else padded.astype(np.int8)


def unpack_runs(packed: Array, segment: int, length: int) -> Array:
    """Return the weights that `pack_runs` has packed, int8 [channels, K]."""
    wide = packed.astype(np.int16) - (128 if packed.dtype == np.uint8 else 0)
    padded = -(-segment // length) * length
    segments = wide.reshape(packed.shape[0], -1, padded)[:, :, :segment]
    return segments.reshape(packed.shape[0], -1).astype(np.int8)


def word_indices(segment: int, length: int, runs: int, header: int) -> Array:
    """Return the index of the first word of each input in a patch of two pairs of pixels, int64 [K].

    Args:
        runs: number of runs in all segments.
        header: words in front of each run.
    """
    of_segment = -(-segment // length)
    k = np.arange(segment)
    places = k // length * (2 * length + header) + header + 2 * (k % length)
    starts = np.arange(runs // of_segment) * of_segment * (2 * length + header)
    return (starts[:, None] + places).reshape(-1)


def pack_remainders(rests: Array, places: Array) -> Array:
    """Pack remainders as int16: for each channel their number, then word index and weight of each.

    Args:
        rests: int8 [channels, K].
        places: see `word_indices`.
    """
    packed: list[int] = []
    for weights in rests:
        (where,) = np.nonzero(weights)
        packed += [where.size, *np.stack([places[where], weights[where]], axis=1).reshape(-1).tolist()]
    return np.array(packed, np.int16)
