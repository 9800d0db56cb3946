"""Weight layouts of the SMLAD kernels, and their inverses.

SMLAD multiplies two pairs of int16. SXTB16 widens every other byte of a word of int8 inputs, so that the
natural pairs of four inputs are (0, 2) and (1, 3). The weights have that order, so that the inputs need no
shuffling.

*Paired* packing stores two channels in the bytes of one int16, ``v = a + 256 * b``. Modulo 2^32,
``sum(v * x) = A + 256 * B``, and ``sum(a * x) = A`` (SXTB16 extracts ``a``). Therefore
``B = (sum(v * x) - A) >> 8`` if ``|B| < 2^23``. One unpacking instruction serves two products, and the
weights have the size of int8.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range, output_table
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.kernels.requantize.pre_shifted_accumulator import (
    SmladRequantization,
    plan_smlad_requantization,
)

# Exclusive limit of the magnitude of the sums of second channels.
PAIRED_LIMIT = 1 << 23


def pair_order(segment: int) -> Array:
    """Return the order in which the inputs of a segment are multiplied, int [pairs, 2]; -1 is no input.

    Each four inputs form the pairs (0, 2) and (1, 3). The remaining inputs form pairs in order.
    """
    whole = segment // 4 * 4
    order = [pair for k in range(0, whole, 4) for pair in ((k, k + 2), (k + 1, k + 3))]
    rest = list(range(whole, segment))
    order += [(k, k + 1 if k + 1 < segment else -1) for k in rest[::2]]
    return np.array(order, np.int64)


def pair_lanes(matrix: Array, segment: int) -> Array:
    """Reorder weights [channels, K] to [channels, pairs, 2]. Lanes without an input are 0.

    Args:
        segment: inputs of a segment. K consists of segments that are widened separately.
    """
    channels, depth = matrix.shape
    order = pair_order(segment)
    segments = matrix.reshape(channels, depth // segment, segment)
    lanes = np.where(order < 0, 0, segments[:, :, order])
    return lanes.reshape(channels, -1, 2)


def unpair_lanes(lanes: Array, segment: int) -> Array:
    """Return the weights that `pair_lanes` has reordered, [channels, K]."""
    channels = lanes.shape[0]
    order = pair_order(segment)
    segments = lanes.reshape(channels, -1, order.size)
    used = order.reshape(-1) >= 0
    matrix = np.zeros((channels, segments.shape[1], segment), lanes.dtype)
    matrix[:, :, order.reshape(-1)[used]] = segments[:, :, used]
    return matrix.reshape(channels, -1)


def fits_paired(matrix: Array, bounds: tuple[Array, Array]) -> bool:
    """Return whether channels (2i, 2i + 1) can be packed in paired lanes.

    Args:
        matrix: int8 weights [channels, K].
        bounds: smallest and largest accumulator of each channel.
    """
    second = np.maximum(-bounds[0][1::2], bounds[1][1::2])
    if bool(np.any(second >= PAIRED_LIMIT)):
        return False
    count = matrix.shape[0] // 2 * 2
    lanes = matrix[:count:2].astype(np.int64) + 256 * matrix[1:count:2].astype(np.int64)
    return not bool(np.any((lanes < -(1 << 15)) | (lanes >= 1 << 15)))


def pack_paired(lanes: Array) -> Array:
    """Pack int8 [channels, pairs, 2] into int32 [channels / 2, pairs]. A missing last channel is 0."""
    wide = _even_channels(lanes).astype(np.int64)
    return _words(wide[0::2] + 256 * wide[1::2])


def unpack_paired(words: Array) -> Array:
    """Return the weights that `pack_paired` has packed, int8 [channels, pairs, 2], channels even."""
    lanes = words[..., None].view(np.int16).astype(np.int64)
    first = lanes.astype(np.int8).astype(np.int64)
    both = np.stack([first, (lanes - first) >> 8], axis=1)
    return both.reshape(-1, *lanes.shape[1:]).astype(np.int8)


def pack_int16(lanes: Array) -> Array:
    """Pack [channels, pairs, 2] into int32 [channels / 2, pairs, 2 channels]. A missing last channel is 0."""
    wide = _even_channels(lanes)
    channels, pairs, _ = wide.shape
    return np.ascontiguousarray(_words(wide).reshape(channels // 2, 2, pairs).swapaxes(1, 2))


def unpack_int16(words: Array) -> Array:
    """Return the weights that `pack_int16` has packed, int16 [channels, pairs, 2], channels even."""
    lanes = np.ascontiguousarray(words.swapaxes(1, 2))[..., None].view(np.int16)
    return lanes.reshape(-1, *lanes.shape[2:])


def paired_biases(bias: Array) -> Array:
    """Return the initial sums of paired lanes: ``a`` for first channels, ``a + 256 * b`` for second ones.

    Args:
        bias: int32 [channels], channels even.
    """
    combined = bias.astype(np.int64)
    combined[1::2] = combined[0::2] + 256 * combined[1::2]
    return combined.astype(np.int32)


def smlad_constants(packing: str, lanes: Array, records: Array, left: Array) -> tuple[Array, Array]:
    """Return weights and channel records for kernels that compute two channels at a time.

    Args:
        packing: ``paired`` or ``int16``.
        lanes: weights [channels, pairs, 2].
        records: int32 [channels, 4]. The first column is the bias.
        left: left shift of sums that the requantisation requires, in bits, int64 [channels]. int16 weights
            and their biases are stored shifted. Paired lanes have no room for it.

    Returns:
        Weights, int32 [channels / 2, pairs] (paired) or [channels / 2, pairs, 2], and records, channels even.
    """
    if packing == "paired":
        records = product_sum.pad_channels(records, 2)
        records[:, 0] = paired_biases(records[:, 0])
        return pack_paired(lanes), records
    shifted = records.copy()
    shifted[:, 0] = (records[:, 0].astype(np.int64) << left).astype(np.int32)
    return pack_int16(lanes.astype(np.int64) << left[:, None, None]), product_sum.pad_channels(shifted, 2)


def plan_requantization(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array], *, common: bool
) -> SmladRequantization:
    """Return the shortest exact requantisation of a layer's sums, see `plan_smlad_requantization`.

    Args:
        matrix: weights [channels, K].
        multipliers: the reference's mantissas and shifts per channel.
        common: whether to look for one final shift for all channels.
    """
    out = output_table.sum_type(layer.node)
    assert out.quant is not None
    return plan_smlad_requantization(
        matrix,
        *product_sum.bias_and_bounds(layer, matrix),
        multipliers,
        out.quant.zero_point,
        output_range.integer_bounds(layer.node),
        common=common,
    )


def group_channels(channels: int, size: int) -> Array:
    """Return the channels of each group, int [groups, size].

    An incomplete last group also has the channels before, so that some channels are computed twice.
    """
    firsts = np.minimum(np.arange(0, channels, size), max(channels - size, 0))
    return np.minimum(firsts[:, None] + np.arange(size), channels - 1)


def pair_channels(channels: int) -> Array:
    """Return the channels of each pair, int [pairs, 2]. The last pair of an odd number repeats a channel."""
    return group_channels(channels, 2)


def smlad_stream(packing: str, lanes: Array, plan: SmladRequantization) -> Array:
    """Return biases, weights and requantisation in the order of convolutions, see conv2d/dsp_block.j2.

    Args:
        packing: ``paired`` or ``int16``.
        lanes: weights [channels, pairs, 2]; an even number of channels in the order of `pair_channels`.
        plan: requantisation of the same channels.

    Returns:
        The stream, int32 [channels / 2, words].
    """
    paired = packing == "paired"
    bias, left = plan.records[:, 0].astype(np.int64), plan.left
    if paired:
        words = pack_paired(lanes)
        start = paired_biases(plan.records[:, 0])
    else:
        words = pack_int16(lanes.astype(np.int64) << left[:, None, None])
        start = (bias << left).astype(np.int32)
    columns = [plan.records[:, 1], plan.records[:, 2]]
    if not plan.shift:
        columns.append(plan.records[:, 3])
    elif paired:
        # Sums of second channels are already shifted left by 8 bits.
        columns.append(np.where(np.arange(len(left)) % 2, 8 - left, left))
    if plan.shift and plan.form is RequantizeForm.SHORT:
        columns.append((1 << left) >> 1)
    records = np.stack(columns, axis=1).astype(np.int32)
    pairs = len(left) // 2
    return np.concatenate([a.reshape(pairs, -1) for a in (start, words, records)], axis=1)


def packed_stream(packing: str, lanes: Array, records: Array) -> Array:
    """Return the stream with records of two words, one before the weights and one after them.

    Args:
        packing, lanes: as in `smlad_stream`.
        records: records of `packed_record`, int32 [channels, 2].
    """
    words = pack_paired(lanes) if packing == "paired" else pack_int16(lanes)
    pairs = len(lanes) // 2
    parts = records[:, 0], words, records[:, 1]
    return np.concatenate([part.reshape(pairs, -1) for part in parts], axis=1)


def biasless_stream(lanes: Array, records: Array) -> Array:
    """Return the stream for sums that start from zero: paired weights, then the requantisation.

    Args:
        lanes: as in `smlad_stream`.
        records: records of `biasless_sum`, int32 [channels, 2], for second sums shifted left by 8 bits.
    """
    words = pack_paired(lanes)
    return np.concatenate([words, records.reshape(len(words), -1)], axis=1)


def quad_stream(stream: Array, starts: int, pairs: int) -> Array:
    """Convert the stream for two channels at a time to four: words of weights alternate between two pairs.

    Args:
        stream: int32 [channels / 2, words]: biases, all weights, requantisation.
        starts: words of the biases of two channels.
        pairs: pairs of inputs.

    Returns:
        The stream, int32 [channels / 4, 2 * words].
    """
    both = stream.reshape(-1, 2, stream.shape[1])
    parts = (
        both[:, :, :starts],
        both[:, :, starts : starts + pairs].swapaxes(1, 2),
        both[:, :, starts + pairs :],
    )
    return np.concatenate([part.reshape(len(both), -1) for part in parts], axis=1)


def _even_channels(lanes: Array) -> Array:
    """Pad an odd number of channels with a channel of zeros."""
    return np.pad(lanes, ((0, lanes.shape[0] % 2), (0, 0), (0, 0)))


def _words(lanes: Array) -> Array:
    """Join int16 values [..., 2] to int32 [...], with the first in the lower half (little endian)."""
    return np.ascontiguousarray(lanes.astype("<i2")).view("<i4")[..., 0]
