"""What the int8 kernels for Helium (MVE) share: forms of requantisation, packing in blocks of 4 channels.

``VQRDMULH`` is the reference's first rounding bit for bit (multipliers are not negative). ``VRSHL`` by ``-e``
differs from its second, ``(t + 2^(e-1) - [t < 0]) >> e``, only in ``[t < 0]``: results that are negative
without it are not positive with it, so it is not needed where outputs are clamped at the zero point or above.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.requantize import output_range

# Elements of int8 in a vector.
LANES = 16
BLOCK = 4  # channels computed together: the int32 lanes of a vector
EIGHT = 2 * BLOCK  # channels that are narrowed together, see `pack_eights`
_LARGEST_BIAS = 1 << 23  # of those that share a word with the shift


class MveForm(str, enum.Enum):
    """Instruction sequence that requantises; the value ends the helper's C name."""

    RELU = "relu"
    PLAIN = "plain"
    GENERAL = "general"


def requantization(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array], *, wrap: bool = False
) -> tuple[MveForm, Array]:
    """The shortest exact form, and its constants.

    Args:
        matrix: the weights as [channels, K].
        multipliers: the reference's mantissas and shifts per channel.
        wrap: sums may leave 32 bits and wrap round, so that none is known not to be negative.

    Returns:
        Form, and int32 [channels, rows]: bias with the input's zero point folded in, multiplier, right shift
        (not positive), and for the general form the left shift.
    """
    out = layer.node.outputs[0].type
    assert out.quant is not None
    bias, (lowest, _) = product_sum.bias_and_bounds(layer, matrix)
    mantissas, shifts = (np.asarray(part, np.int64) for part in multipliers)
    columns = [bias, mantissas, np.minimum(shifts, 0)]
    low, _ = output_range.integer_bounds(layer.node)
    if int(shifts.max()) > 0:
        form = MveForm.GENERAL
    elif low >= out.quant.zero_point or (int(lowest.min()) >= 0 and not wrap):
        form = MveForm.RELU
    else:
        form = MveForm.PLAIN if int(shifts.max()) < 0 else MveForm.GENERAL
    if form is MveForm.GENERAL:
        columns.append(np.maximum(shifts, 0))
    return form, np.stack(columns, axis=1).astype(np.int32)


def block_records(records: Array) -> Array:
    """[channels, rows] to [blocks, rows, 4]; padding channels give zeros."""
    padded = product_sum.pad_channels(records, BLOCK)
    return np.ascontiguousarray(padded.reshape(-1, BLOCK, records.shape[1]).swapaxes(1, 2))


def block_words(records: Array) -> Array:
    """Records of `requantization`, blocks as loads find them, int32 [blocks, words].

    Four biases, four multipliers, then a word of four bytes for each shift: loads widen them.
    """
    rows = block_records(records)
    shifts = rows[:, 2:].astype(np.int8).reshape(len(rows), -1).view("<i4")
    return np.concatenate([rows[:, :2].reshape(len(rows), -1), shifts], axis=1)


def unshared_biases(records: Array) -> str | None:
    """Why biases have words of their own; None if `pack_records` takes them."""
    largest = int(np.abs(records[:, 0].astype(np.int64)).max())
    if largest >= _LARGEST_BIAS:
        return f"biases, with the input's zero point, must be below 2^23; the largest one is {largest}"
    return None


def pack_records(records: Array) -> Array:
    """Biases above a byte with the shift, which is all that VRSHL takes of a register; multipliers.

    Args:
        records: int32 [channels, 3] of `requantization` without left shifts, see `unshared_biases`.
    """
    bias, multiplier, shift = records.T
    return np.stack([bias << 8 | shift & 0xFF, multiplier], axis=1)


def pack_24_bits(biases: Array) -> Array:
    """[channels], see `unshared_biases`, to int32 [blocks, 3]: [4] lower halfwords, then [4] upper bytes."""
    padded = product_sum.pad_channels(biases.astype(np.int32), BLOCK).reshape(-1, BLOCK)
    lower, upper = padded.astype("<i2").view("<i4"), (padded >> 16).astype(np.int8).view("<i4")
    return np.concatenate([lower, upper], axis=1)


def record_order(form: MveForm) -> str:
    """What `block_words` makes of a block of channels' records."""
    shifts = "right and left shifts" if form is MveForm.GENERAL else "shifts"
    return f"[4] biases, [4] multipliers, bytes with [4] {shifts}"


def block_weights(matrix: Array) -> Array:
    """[channels, K] to [blocks, vectors, 4, 16]; K and channels are padded with zeros."""
    padded = product_sum.pad_channels(matrix, BLOCK)
    padded = np.pad(padded, ((0, 0), (0, -padded.shape[1] % LANES)))
    blocks = padded.reshape(padded.shape[0] // BLOCK, BLOCK, -1, LANES)
    return np.ascontiguousarray(blocks.swapaxes(1, 2))


def pack_rows(matrix: Array, records: Array) -> Array:
    """Weights [channels, K] in rows of their own length, each 4 of them behind their records.

    Args:
        records: int32 [blocks, words].

    Returns:
        int32 [blocks, words]: the records, then [4][K] bytes, little endian.
    """
    padded = product_sum.pad_channels(matrix.astype(np.int8), BLOCK)
    rows = np.ascontiguousarray(padded).reshape(records.shape[0], -1).view("<i4")
    return np.concatenate([records, rows], axis=1)


def pack_blocks(matrix: Array, records: Array) -> Array:
    """Weights [channels, K] and their records in the order that kernels read them.

    Returns:
        int32 [blocks, words]: for each block of 4 channels the biases, the weights ([vectors, 4, 16] bytes,
        little endian), then what else `block_words` has.
    """
    weights = block_weights(matrix)
    words = weights.reshape(weights.shape[0], -1).view("<i4")
    rows = block_words(records)
    return np.concatenate([rows[:, :BLOCK], words, rows[:, BLOCK:]], axis=1)


def pack_eights(matrix: Array, records: Array, *, held: bool) -> Array:
    """The same for blocks two of which become eight outputs: the first one has the even channels of eight.

    Args:
        held: for code that keeps inputs in registers. It has none left for biases and shifts that share
            words, and takes blocks two at a time: one of zeros goes with four channels or fewer that are
            left. Otherwise these are a block alone.

    Returns:
        int32 [blocks, words]: for each block the weights, then [4] rows of `pack_records`. If `held`, [pairs,
        words]: bytes with the shifts of two blocks, then for each its weights, biases and multipliers.
    """
    count = matrix.shape[0]
    left = count % EIGHT
    padded = count + -count % EIGHT if left > BLOCK or held else count
    order = np.arange(padded)
    whole = padded - padded % EIGHT
    order[:whole] = order[:whole].reshape(-1, BLOCK, 2).swapaxes(1, 2).reshape(-1)
    ordered = [np.pad(part, ((0, padded - count), (0, 0)))[order] for part in (matrix, records)]
    weights = block_weights(ordered[0])
    words = weights.reshape(weights.shape[0], -1).view("<i4")
    if not held:
        rows = block_records(pack_records(ordered[1])).reshape(words.shape[0], -1)
        return np.concatenate([words, rows], axis=1)
    rows = block_words(ordered[1])
    blocks = np.concatenate([words, rows[:, : 2 * BLOCK]], axis=1)
    return np.concatenate(
        [rows[:, 2 * BLOCK :].reshape(-1, 2), blocks.reshape(rows.shape[0] // 2, -1)], axis=1
    )


def output_parameters(layer: LayerContext) -> tuple[bool, Mapping[str, Parameter]]:
    """Whether outputs have bounds of their own besides int8's, and the layer fields that finish an output."""
    out = layer.node.outputs[0].type
    assert out.quant is not None
    low, high = output_range.output_limits(layer)
    clamp = (low, high) != out.dtype.range
    fields: dict[str, Parameter] = {"output_zero_point": out.quant.zero_point}
    if clamp:
        fields |= {"output_minimum": low, "output_maximum": high}
    return clamp, fields


def finish_spec(
    form: MveForm, clamp: bool, channels: int, block: int = BLOCK
) -> tuple[tuple[str, SpecValue], ...]:
    """What templates need to know to write a block of outputs."""
    return (("requantize", form.value), ("clamp", clamp), ("channel_tail", channels % block != 0))


def finish_terms(form: MveForm) -> Terms:
    """Of a vector of 4 sums, which become 4 outputs."""
    return Terms({f"finish_{form.value}": 1})
