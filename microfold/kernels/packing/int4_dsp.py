"""Weights of four bits for cores with DSP instructions.

A half of a word holds the weights of one input and four channels, ``h = n0 + 2^4 n1 + 2^8 n2 + 2^12 w3``:
nibbles n are weights plus 8, the highest one is signed. SMLAD multiplies two halves by two inputs. Taking
nibbles off from above, one mask each, gives four sums:

    T = sum(h * x)      D = T without w3      P = D without n2      A = sum(n0 * x)

Modulo 2^32, T - D is 2^12 times the sum of channel 3, D - P is 2^8 times that of n2, P - A is 2^4 times that
of n1. Shifts give these sums back as long as those of channels 3 fit 20 bits, and those of n2 fit 24. With
n = w + 8, sums of nibbles are 8 * sum(x) larger than those of weights, the same for all channels.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import Constant, Parameter, SpecValue
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import int4, smlad
from microfold.kernels.requantize import output_range
from microfold.kernels.requantize.multiply_high import RequantizeForm

# Sums of nibbles of up to 15 and bytes fit 24 bits for that many inputs.
_LARGEST_DEPTH = (1 << 23) // (15 * 128)
# Inputs of which any sums fit 20 bits.
_CHUNK = 508


def pack(matrix: Array, together: int) -> Array:
    """Words of [channels, inputs] in reading order, uint32.

    Args:
        together: blocks of four channels that are read in turn, for every four inputs their pairs (0, 2) and
            (1, 3); then come those blocks that are left, one after the other.
    """
    channels, depth = matrix.shape
    padded = np.pad(matrix, ((0, -channels % int4.GROUP), (0, -depth % 4))).astype(np.int64)
    padded[np.arange(len(padded)) % int4.GROUP < 3] += 8
    # [block, pair of inputs, half, channel]
    lanes = smlad.pair_lanes(padded, padded.shape[1])
    blocks = lanes.reshape(-1, int4.GROUP, *lanes.shape[1:]).transpose(0, 2, 3, 1)
    words = int4.join_nibbles(blocks.reshape(*blocks.shape[:2], 8))
    rows = words.reshape(len(words), -1, 2)
    whole = len(rows) // together * together
    front = rows[:whole].reshape(-1, together, *rows.shape[1:]).swapaxes(1, 2)
    return np.concatenate([front.reshape(-1), rows[whole:].reshape(-1)])


def parts(matrix: Array) -> int:
    """In how many parts sums must be taken to be sure that they fit; 0: they fit as they are."""
    largest = 128 * np.abs(matrix[3::4].astype(np.int64)).sum(axis=1)
    fit = matrix.shape[1] <= _LARGEST_DEPTH and not np.any(largest >= 1 << 19)
    return 0 if fit else -(-matrix.shape[1] // _CHUNK)


ROW_FIELDS = declare(
    Field("weights", "of four inputs at a time: pairs (0, 2) and (1, 3) of every four outputs"), "channels"
)


def constants(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array], *, together: int
) -> tuple[tuple[tuple[str, SpecValue], ...], dict[str, Parameter]]:
    """How a row is computed, and values of `ROW_FIELDS` and of output limits.

    Args:
        matrix: the weights as [channels, K], any zero point taken off.
        multipliers: the reference's mantissas and shifts per channel.
        together: see `pack`.
    """
    planned = smlad.plan_requantization(layer, matrix, multipliers, common=False)
    low, high = output_range.output_limits(layer)
    records = planned.records.copy()
    if planned.form is not RequantizeForm.GENERAL:
        # Modulo 2^32, as sums are.
        records[:, 0] = (records[:, 0].astype(np.int64) << 2).astype(np.int32)
    fields: dict[str, Parameter] = {
        "weights": Constant("weights", pack(planned.matrix, together)),
        "channels": Constant("channels", records, record="mf_channel"),
    }
    clamp = (low, high) != (-128, 127)
    if clamp:
        fields |= {"output_minimum": low, "output_maximum": high}
    spec = (
        ("requantize", planned.form.value),
        ("clamp", clamp),
        ("long", parts(planned.matrix) > 0),
    )
    return spec, fields


def row_terms(matrix: Array, form: RequantizeForm) -> Terms:
    """Of all outputs of one row of inputs."""
    channels, depth = matrix.shape
    steps = -(-depth // 4)
    pairs, single = divmod(-(-channels // int4.GROUP), 2)
    long = parts(matrix)
    return Terms(
        row=1,
        input=depth,
        block=pairs + single,
        odd_block=(pairs + single) * (depth % 4 != 0),
        paired_step=pairs * steps,
        single_step=single * steps,
        paired_part=pairs * long,
        single_part=single * long,
        output=channels,
        general=channels * (form is RequantizeForm.GENERAL),
    )
