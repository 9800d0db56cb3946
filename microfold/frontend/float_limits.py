"""Where float results are clamped to the largest finite numbers.

The reference's operators with a fused activation clamp each float result to ±FLT_MAX, whatever the
activation. On a core without an instruction for it that is 3 to 4 % of a network's time, for results that
honest networks do not have. Float tensors are therefore taken to stay below `ORDINARY` in magnitude, see
`docs/reference.md`; an operator clamps where its constants break that, where what it reads comes from such
an operator, and where it may divide by zero.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.op import Op
from microfold.ir.types import Array
from microfold.ops.elementwise.activations.clip import Clip
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.normalize.l2_normalization import L2Normalization
from microfold.ops.normalize.softmax import Softmax

FLT_MAX = float(np.finfo(np.float32).max)
# The product of two such numbers is finite.
ORDINARY = 2.0**63


def bounds_results(op: Op) -> bool:
    """Whether results are ordinary whatever is read."""
    if isinstance(op, Clip):
        return max(abs(op.minimum), abs(op.maximum)) < ORDINARY
    return isinstance(op, Softmax | Logistic | Tanh | L2Normalization)


def is_ordinary(array: Array) -> bool:
    """Whether products of a constant with ordinary numbers, summed up in any order, stay finite."""
    return array.dtype.kind != "f" or bool(np.abs(array.astype(np.float64)).sum() < ORDINARY)


def divides_ordinarily(divisor: Array | None) -> bool:
    """Whether quotients of ordinary numbers by a constant (None: by what the model computes) stay finite."""
    return divisor is not None and bool((np.abs(divisor.astype(np.float64)) > 1 / ORDINARY).all())
