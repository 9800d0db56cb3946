"""Two words for a channel whose sums are shifted, see `shifted_sum`, where all channels have the same E.

The addend follows from how far sums are shifted to the left, L, and from what all channels have in common:

    middle = zero_point * 2^E + 2^(E-1)
    u = floor(x * 2^L * m / 2^32) + middle + 2^(L-2),   y = (u - 2^(L-1) * [x < 0]) >> E

so that the bias with L in its lowest bits, and m, are all. Negative sums are always corrected: where the
output is clamped at the zero point, it does no harm.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.requantize.multiply_high import RequantizeForm
from microfold.kernels.requantize.shifted_sum import LARGEST_LEFT, SmladRequantization
from microfold.support.frozen import frozen

# Among the names of `RequantizeForm`.
FORM = "packed"
# Bits beside the bias.
FIELD_BITS = 4
# Of channels whose output is the same for all inputs.
_HELD_MULTIPLIER = 1 << 30


@frozen(eq=False)
class PackedRequantization:
    """How to requantise.

    Attributes:
        shift: E of all channels.
        middle: of all channels.
        records: int32 [channels, 2]: 2^4 times the bias plus L, 2 to 8; the multiplier.
    """

    shift: int
    middle: int
    records: Array

    @property
    def biases(self) -> Array:
        """int32 [channels]: what sums start from."""
        return self.records[:, 0] >> FIELD_BITS


def pack_records(plan: SmladRequantization, zero_point: int) -> PackedRequantization | None:
    """Records of all channels; None if they have no common shift, or a bias is too large.

    Args:
        plan: with a common shift, if there is one.
        zero_point: of the output.
    """
    if not plan.shift or plan.form is RequantizeForm.GENERAL:
        return None
    middle = (2 * zero_point + 1) << (plan.shift - 1)
    bias, multiplier, addend, _ = plan.records.astype(np.int64).T
    # Without products, u is the bias times 2^(L-2), and what is added and taken off stays within the output.
    held = multiplier == 0
    bias = np.where(held, (addend - middle) >> (LARGEST_LEFT - 2), bias)
    left = np.where(held, LARGEST_LEFT, plan.left)
    if bool((np.abs(bias) >= 1 << (31 - FIELD_BITS)).any()):
        return None
    columns = bias << FIELD_BITS | left, np.where(held, _HELD_MULTIPLIER, multiplier)
    return PackedRequantization(plan.shift, middle, np.stack(columns, axis=1).astype(np.int32))
