"""Folds products with constants into the weights before them, then into the weights after them.

Backward folding runs first, as in TVM: a scale per output channel multiplies one filter each, and the bias.
A product that neither direction can fold stays.
"""

from __future__ import annotations

from microfold.passes.kinds import FixedPointIteration
from microfold.transform.scales.backward_fold_scale_axis import backward_fold_scale_axis
from microfold.transform.scales.forward_fold_scale_axis import forward_fold_scale_axis

fold_scale_axis = FixedPointIteration(
    [backward_fold_scale_axis, forward_fold_scale_axis], name="fold_scale_axis", opt_level=3
)
