"""Two words for each channel with shifted sums, see `pre_shifted_accumulator`, if all channels have the same
E.

The addend follows from the left shift L of the sums, and from a number that all channels share:

    middle = zero_point * 2^E + 2^(E-1)
    u = floor(x * 2^L * m / 2^32) + middle + 2^(L-2),   y = (u - 2^(L-1) * [x < 0]) >> E

Therefore a record only has the bias, with L in its lowest bits, and m. Negative sums are always corrected. If
the output is clamped at the zero point, the correction is harmless.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from microfold.ir.types import Array
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.kernels.requantize.pre_shifted_accumulator import LARGEST_LEFT, SmladRequantization

# Name of this form, in addition to the names of `RequantizeForm`.
FORM = "packed"
# Bits of the first word below the bias.
FIELD_BITS = 4
# Multiplier of channels whose output is the same for all inputs.
_HELD_MULTIPLIER = 1 << 30


class PackedRequantization(Struct, frozen=True, eq=False):
    """Requantisation of all channels of a layer.

    Attributes:
        shift: E, the same for all channels.
        middle: shared part of the addends.
        records: int32 [channels, 2]: 2^4 times the bias plus L, 2 to 8; the multiplier.
    """

    shift: int
    middle: int
    records: Array

    @property
    def biases(self) -> Array:
        """Initial sums, int32 [channels]."""
        return self.records[:, 0] >> FIELD_BITS


def pack_records(plan: SmladRequantization, zero_point: int) -> PackedRequantization | None:
    """Return the records of all channels; None if they have no common shift, or a bias is too large.

    Args:
        plan: requantisation, with a common shift if there is one.
        zero_point: zero point of the output.
    """
    if not plan.shift or plan.form is RequantizeForm.GENERAL:
        return None
    middle = (2 * zero_point + 1) << (plan.shift - 1)
    bias, multiplier, addend, _ = plan.records.astype(np.int64).T
    # Without products, u is the bias times 2^(L-2). The addends and the correction do not change the output.
    held = multiplier == 0
    bias = np.where(held, (addend - middle) >> (LARGEST_LEFT - 2), bias)
    left = np.where(held, LARGEST_LEFT, plan.left)
    if bool((np.abs(bias) >= 1 << (31 - FIELD_BITS)).any()):
        return None
    columns = bias << FIELD_BITS | left, np.where(held, _HELD_MULTIPLIER, multiplier)
    return PackedRequantization(plan.shift, middle, np.stack(columns, axis=1).astype(np.int32))
