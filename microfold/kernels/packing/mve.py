"""Forms of requantisation, and packing in blocks of 4 channels, for the int8 kernels for Helium (MVE).

``VQRDMULH`` equals the reference's first rounding bit for bit (multipliers are not negative). The second one
is ``(t + 2^(e-1) - [t < 0]) >> e``. ``VRSHL`` by ``-e`` omits only ``[t < 0]``. A result that is negative
without this term is not positive with it. Therefore it is not needed if outputs are clamped to the zero point
or above.
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

# Number of int8 elements in a vector.
LANES = 16
BLOCK = 4  # Channels that are computed together: the int32 lanes of a vector.
EIGHT = 2 * BLOCK  # Channels whose outputs are narrowed together, see `pack_eights`.
_LARGEST_BIAS = 1 << 23  # Exclusive limit of the magnitude of biases that share a word with the shift.


class MveForm(str, enum.Enum):
    """Instruction sequence of the requantisation. The value is the last part of the helper's C name."""

    RELU = "relu"
    PLAIN = "plain"
    GENERAL = "general"


def requantization(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array], *, wrap: bool = False
) -> tuple[MveForm, Array]:
    """Return the shortest exact form of the requantisation, and its constants.

    Args:
        matrix: weights [channels, K].
        multipliers: the reference's mantissas and shifts per channel.
        wrap: whether sums may exceed 32 bits and wrap around, so that any sum can be negative.

    Returns:
        The form, and int32 [channels, rows]: bias with the input's zero point folded in, multiplier, right
        shift (zero or negative), and for the general form the left shift.
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
    """Reorder [channels, rows] to [blocks, rows, 4]. Padding channels are zeros."""
    padded = product_sum.pad_channels(records, BLOCK)
    return np.ascontiguousarray(padded.reshape(-1, BLOCK, records.shape[1]).swapaxes(1, 2))


def block_words(records: Array) -> Array:
    """Pack records of `requantization` in the order of loads, int32 [blocks, words].

    A block has four biases, four multipliers, then a word of four bytes for each shift, which loads widen.
    """
    rows = block_records(records)
    shifts = rows[:, 2:].astype(np.int8).reshape(len(rows), -1).view("<i4")
    return np.concatenate([rows[:, :2].reshape(len(rows), -1), shifts], axis=1)


def unshared_biases(records: Array) -> str | None:
    """Return the reason why biases need separate words, or None if `pack_records` can pack them."""
    largest = int(np.abs(records[:, 0].astype(np.int64)).max())
    if largest >= _LARGEST_BIAS:
        return f"biases, with the input's zero point folded in, must be below 2^23; the largest is {largest}"
    return None


def pack_records(records: Array) -> Array:
    """Pack bias and shift into one word, followed by the multiplier, int32 [channels, 2].

    The lowest byte of the word has the shift, because VRSHL reads only this byte of a register.

    Args:
        records: int32 [channels, 3] of `requantization` without left shifts, see `unshared_biases`.
    """
    bias, multiplier, shift = records.T
    return np.stack([bias << 8 | shift & 0xFF, multiplier], axis=1)


def pack_24_bits(biases: Array) -> Array:
    """Pack biases [channels] as int32 [blocks, 3]: [4] lower halfwords, then [4] upper bytes.

    `unshared_biases` must be None.
    """
    padded = product_sum.pad_channels(biases.astype(np.int32), BLOCK).reshape(-1, BLOCK)
    lower, upper = padded.astype("<i2").view("<i4"), (padded >> 16).astype(np.int8).view("<i4")
    return np.concatenate([lower, upper], axis=1)


def record_order(form: MveForm) -> str:
    """Return the layout of a block in `block_words`, as part of a field's comment."""
    shifts = "right and left shifts" if form is MveForm.GENERAL else "shifts"
    return f"[4] biases, [4] multipliers, bytes with [4] {shifts}"


def block_weights(matrix: Array) -> Array:
    """Reorder [channels, K] to [blocks, vectors, 4, 16]. K and channels are padded with zeros."""
    padded = product_sum.pad_channels(matrix, BLOCK)
    padded = np.pad(padded, ((0, 0), (0, -padded.shape[1] % LANES)))
    blocks = padded.reshape(padded.shape[0] // BLOCK, BLOCK, -1, LANES)
    return np.ascontiguousarray(blocks.swapaxes(1, 2))


def pack_rows(matrix: Array, records: Array) -> Array:
    """Pack weights [channels, K] in unpadded rows, every 4 of them after their records.

    Args:
        records: int32 [blocks, words].

    Returns:
        int32 [blocks, words]: the records, then [4][K] bytes, little endian.
    """
    padded = product_sum.pad_channels(matrix.astype(np.int8), BLOCK)
    rows = np.ascontiguousarray(padded).reshape(records.shape[0], -1).view("<i4")
    return np.concatenate([records, rows], axis=1)


def pack_blocks(matrix: Array, records: Array) -> Array:
    """Pack weights [channels, K] and their records in the order in which kernels read them.

    Returns:
        int32 [blocks, words]: for each block of 4 channels the biases, the weights ([vectors, 4, 16] bytes,
        little endian), then the other words of `block_words`.
    """
    weights = block_weights(matrix)
    words = weights.reshape(weights.shape[0], -1).view("<i4")
    rows = block_words(records)
    return np.concatenate([rows[:, :BLOCK], words, rows[:, BLOCK:]], axis=1)


def pack_eights(matrix: Array, records: Array, *, held: bool) -> Array:
    """Pack weights and records for code that narrows the outputs of two blocks to 8 channels.

    The first block of two has the even channels of 8, the second one the odd channels.

    Args:
        held: whether the code keeps inputs in registers. It then has no registers to unpack biases and shifts
            that share words, and always reads two blocks, the second one of zeros if at most 4 channels
            remain. Otherwise these channels are a single block.

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
    """Return whether outputs are clamped below their type's range, and fields of zero point and limits."""
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
    """Return the spec with which templates write a block of outputs."""
    return (("requantize", form.value), ("clamp", clamp), ("channel_tail", channels % block != 0))


def finish_terms(form: MveForm) -> Terms:
    """Count the code parts that compute 4 outputs from a vector of 4 sums."""
    return Terms({f"finish_{form.value}": 1})
