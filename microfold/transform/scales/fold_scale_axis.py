"""Folds products with constants into weights: first into those before them, then into those behind.

Backward first, as in TVM: a filter scaled per output channel is one row of weights per scale, and the bias
goes along. What neither direction can take stays.
"""

from __future__ import annotations

from microfold.passes.kinds import FixedPointIteration
from microfold.transform.scales.backward_fold_scale_axis import backward_fold_scale_axis
from microfold.transform.scales.forward_fold_scale_axis import forward_fold_scale_axis

fold_scale_axis = FixedPointIteration(
    [backward_fold_scale_axis, forward_fold_scale_axis], name="fold_scale_axis", opt_level=3
)
