"""Packing of 4-bit weights for cores with the DSP extension.

A halfword has the weights of one input and four channels, ``h = n0 + 2^4 n1 + 2^8 n2 + 2^12 w3``. The nibbles
n are weights plus 8; the highest nibble is signed. SMLAD multiplies two halfwords by two inputs. Masks clear
one nibble after the other, from above, which results in four sums:

    T = sum(h * x)      D = T without w3      P = D without n2      A = sum(n0 * x)

Modulo 2^32, T - D is 2^12 times the sum of w3, D - P is 2^8 times the sum of n2, and P - A is 2^4 times the
sum of n1. Shifts extract these sums if the sums of w3 fit 20 bits, and the sums of n2 fit 24 bits. Because
n = w + 8, a sum of nibbles exceeds the sum of weights by 8 * sum(x), which is equal for all channels.
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
from microfold.kernels.requantize.mul_hi import RequantizeForm

# Maximum number of inputs for which any sum of nibbles (up to 15) times bytes fits 24 bits.
_LARGEST_DEPTH = (1 << 23) // (15 * 128)
# Number of inputs for which any sum of a signed nibble fits 20 bits.
_CHUNK = 508


def pack(matrix: Array, together: int) -> Array:
    """Pack [channels, inputs] into uint32 words in reading order.

    Args:
        together: number of blocks of 4 channels that are read alternately: for every four inputs, each block
            has its pairs (0, 2) and (1, 3). The remaining blocks follow one after the other.
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
    """Return the number of parts into which sums must be split to fit; 0 if complete sums fit."""
    largest = 128 * np.abs(matrix[3::4].astype(np.int64)).sum(axis=1)
    fit = matrix.shape[1] <= _LARGEST_DEPTH and not np.any(largest >= 1 << 19)
    return 0 if fit else -(-matrix.shape[1] // _CHUNK)


ROW_FIELDS = declare(
    Field("weights", "for each four inputs, pairs (0, 2) and (1, 3) of each four outputs"), "channels"
)


def constants(
    layer: LayerContext, matrix: Array, multipliers: tuple[Array, Array], *, together: int
) -> tuple[tuple[tuple[str, SpecValue], ...], dict[str, Parameter]]:
    """Return the spec of a row's computation, and the values of `ROW_FIELDS` and of output limits.

    Args:
        matrix: weights [channels, K], with any zero point subtracted.
        multipliers: the reference's mantissas and shifts per channel.
        together: see `pack`.
    """
    planned = smlad.plan_requantization(layer, matrix, multipliers, common=False)
    low, high = output_range.output_limits(layer)
    records = planned.records.copy()
    if planned.form is not RequantizeForm.GENERAL:
        # Sums are modulo 2^32.
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
    """Count the code parts for all outputs of one row of inputs."""
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
