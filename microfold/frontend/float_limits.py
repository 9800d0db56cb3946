"""Analysis of float32 results that must be clamped to ±FLT_MAX.

The reference's operators with a fused activation clamp each float result to ±FLT_MAX, for every activation.
On a core without an instruction for it, clamping costs 3 to 4 % of a network's time, but real networks have
no such results. Therefore microfold assumes that float tensors stay below `ORDINARY` in magnitude, see
`docs/reference.md`. An operator clamps its results only if its constants break this assumption, if it reads
results of such an operator, or if it may divide by zero.
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
# Bound of ordinary magnitudes. The product of two ordinary numbers is finite.
ORDINARY = 2.0**63


def bounds_results(op: Op) -> bool:
    """Return whether the operator's results are ordinary for all inputs."""
    if isinstance(op, Clip):
        return max(abs(op.minimum), abs(op.maximum)) < ORDINARY
    return isinstance(op, Softmax | Logistic | Tanh | L2Normalization)


def is_ordinary(array: Array) -> bool:
    """Return whether sums of products of a constant with ordinary numbers stay finite in any order."""
    return array.dtype.kind != "f" or bool(np.abs(array.astype(np.float64)).sum() < ORDINARY)


def divides_ordinarily(divisor: Array | None) -> bool:
    """Return whether ordinary numbers, divided by a constant, stay finite. None: a computed divisor."""
    return divisor is not None and bool((np.abs(divisor.astype(np.float64)) > 1 / ORDINARY).all())
