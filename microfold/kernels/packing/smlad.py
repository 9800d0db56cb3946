"""Weight layouts of the SMLAD kernels, and their inverses.

SMLAD multiplies two pairs of int16. SXTB16 widens every other byte of a word of int8 inputs, so that the
natural pairs of four inputs are (0, 2) and (1, 3): the weights are put in that order, and the inputs need no
shuffling.

*Paired* packing keeps two channels in the bytes of one int16, ``v = a + 256 * b``. Modulo 2^32,
``sum(v * x) = A + 256 * B``, and ``sum(a * x) = A`` (SXTB16 extracts ``a``), so that
``B = (sum(v * x) - A) >> 8`` as long as ``|B| < 2^23``: two products for one unpacking instruction, with
weights of int8 size.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range, output_table
from microfold.kernels.requantize.multiply_high import RequantizeForm
from microfold.kernels.requantize.shifted_sum import SmladRequantization, plan_smlad_requantization

# Sums of second channels must stay below it in magnitude.
PAIRED_LIMIT = 1 << 23


def pair_order(segment: int) -> Array:
    """Order in which the inputs of a contiguous segment are multiplied, int [pairs, 2]; -1: no input.

    Four at a time as (0, 2), (1, 3); of a rest first two, then the last one alone.
    """
    whole = segment // 4 * 4
    order = [pair for k in range(0, whole, 4) for pair in ((k, k + 2), (k + 1, k + 3))]
    rest = list(range(whole, segment))
    order += [(k, k + 1 if k + 1 < segment else -1) for k in rest[::2]]
    return np.array(order, np.int64)


def pair_lanes(matrix: Array, segment: int) -> Array:
    """Weights [channels, K] as [channels, pairs, 2], K being segments that are widened one by one.

    Lanes without an input hold zeros.
    """
    channels, depth = matrix.shape
    order = pair_order(segment)
    segments = matrix.reshape(channels, depth // segment, segment)
    lanes = np.where(order < 0, 0, segments[:, :, order])
    return lanes.reshape(channels, -1, 2)


def unpair_lanes(lanes: Array, segment: int) -> Array:
    """Inverse of `pair_lanes`."""
    channels = lanes.shape[0]
    order = pair_order(segment)
    segments = lanes.reshape(channels, -1, order.size)
    used = order.reshape(-1) >= 0
    matrix = np.zeros((channels, segments.shape[1], segment), lanes.dtype)
    matrix[:, :, order.reshape(-1)[used]] = segments[:, :, used]
    return matrix.reshape(channels, -1)


def fits_paired(matrix: Array, bounds: tuple[Array, Array]) -> bool:
    """Whether channels (2i, 2i + 1) can be packed in paired lanes.

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
    """[channels, pairs, 2] int8 to int32 [channels / 2, pairs]; a missing last channel is zero."""
    wide = _even_channels(lanes).astype(np.int64)
    return _words(wide[0::2] + 256 * wide[1::2])


def unpack_paired(words: Array) -> Array:
    """Inverse of `pack_paired`: int8 [channels, pairs, 2], channels even."""
    lanes = words[..., None].view(np.int16).astype(np.int64)
    first = lanes.astype(np.int8).astype(np.int64)
    both = np.stack([first, (lanes - first) >> 8], axis=1)
    return both.reshape(-1, *lanes.shape[1:]).astype(np.int8)


def pack_int16(lanes: Array) -> Array:
    """[channels, pairs, 2] to int32 [channels / 2, pairs, 2 channels]; a missing last channel is zero."""
    wide = _even_channels(lanes)
    channels, pairs, _ = wide.shape
    return np.ascontiguousarray(_words(wide).reshape(channels // 2, 2, pairs).swapaxes(1, 2))


def unpack_int16(words: Array) -> Array:
    """Inverse of `pack_int16`: int16 [channels, pairs, 2], channels even."""
    lanes = np.ascontiguousarray(words.swapaxes(1, 2))[..., None].view(np.int16)
    return lanes.reshape(-1, *lanes.shape[2:])


def paired_biases(bias: Array) -> Array:
    """What the sums of paired lanes start from: ``a`` for first channels, ``a + 256 * b`` for second ones.

    Args:
        bias: int32 [channels], channels even.
    """
    combined = bias.astype(np.int64)
    combined[1::2] = combined[0::2] + 256 * combined[1::2]
    return combined.astype(np.int32)


def smlad_constants(packing: str, lanes: Array, records: Array, left: Array) -> tuple[Array, Array]:
    """Weights and channel records for kernels that compute two channels at a time.

    Args:
        packing: ``paired`` or ``int16``.
        lanes: weights [channels, pairs, 2].
        records: int32 [channels, 4], beginning with the bias.
        left: int64 [channels]: how far the requantisation wants sums shifted to the left. Int16 weights and
            their biases are shifted; paired lanes have no room for it.

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
    """The shortest exact form for a layer's sums, see `plan_smlad_requantization`.

    Args:
        matrix: the weights as [channels, K].
        multipliers: the reference's mantissas and shifts per channel.
        common: whether a common shift is wanted.
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
    """Which channels are computed together, int [groups, size]: the last ones of all with those before."""
    firsts = np.minimum(np.arange(0, channels, size), max(channels - size, 0))
    return np.minimum(firsts[:, None] + np.arange(size), channels - 1)


def pair_channels(channels: int) -> Array:
    """Which channels are computed together, int [pairs, 2]: the last of an odd number with the one before."""
    return group_channels(channels, 2)


def smlad_stream(packing: str, lanes: Array, plan: SmladRequantization) -> Array:
    """Weights and requantisation in the order in which convolutions read them; see conv2d/dsp_block.j2.

    Args:
        packing: ``paired`` or ``int16``.
        lanes: weights [channels, pairs, 2] as in `pair_channels`: an even number.
        plan: of the same channels.

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
        # Sums of second channels are 8 bits up already.
        columns.append(np.where(np.arange(len(left)) % 2, 8 - left, left))
    if plan.shift and plan.form is RequantizeForm.SHORT:
        columns.append((1 << left) >> 1)
    records = np.stack(columns, axis=1).astype(np.int32)
    pairs = len(left) // 2
    return np.concatenate([a.reshape(pairs, -1) for a in (start, words, records)], axis=1)


def packed_stream(packing: str, lanes: Array, records: Array) -> Array:
    """The same for two words of each channel, one before the weights and one behind them.

    Args:
        packing, lanes: as in `smlad_stream`.
        records: int32 [channels, 2] of `packed_record`.
    """
    words = pack_paired(lanes) if packing == "paired" else pack_int16(lanes)
    pairs = len(lanes) // 2
    parts = records[:, 0], words, records[:, 1]
    return np.concatenate([part.reshape(pairs, -1) for part in parts], axis=1)


def biasless_stream(lanes: Array, records: Array) -> Array:
    """The same for paired weights and sums that start from zero: words of weights, then of requantisation.

    Args:
        lanes: as in `smlad_stream`.
        records: int32 [channels, 2] of `biasless_sum`, for sums of second channels that are 8 bits up.
    """
    words = pack_paired(lanes)
    return np.concatenate([words, records.reshape(len(words), -1)], axis=1)


def quad_stream(stream: Array, starts: int, pairs: int) -> Array:
    """The same for four channels at a time, from the stream of two: words of weights of both pairs in turn.

    Args:
        stream: int32 [channels / 2, words].
        starts: words of biases of two channels; they come first, then all weights, then requantisation.
        pairs: of inputs.

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
    """With a zero channel behind an odd number of channels."""
    return np.pad(lanes, ((0, lanes.shape[0] % 2), (0, 0), (0, 0)))


def _words(lanes: Array) -> Array:
    """[..., 2] integers that fit int16 to int32 [...], the first one in the lower half (little endian)."""
    return np.ascontiguousarray(lanes.astype("<i2")).view("<i4")[..., 0]
