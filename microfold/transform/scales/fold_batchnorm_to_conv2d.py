"""Folds batch normalisations, written as a product and a sum with constants, into convolutions.

    %a: float32[1,8,8,4] = conv2d(%x, %w, %b) {...}
    %m: float32[1,8,8,4] = mul(%a, %s)
    %y: float32[1,8,8,4] = add(%m, %t)
        ->
    %a: float32[1,8,8,4] = conv2d(%x, %ws, %bst) {...}

Scales are folded first, because a scale stops every shift that meets it.
"""

from __future__ import annotations

from microfold.passes.kinds import FixedPointIteration
from microfold.transform.scales.fold_scale_axis import fold_scale_axis
from microfold.transform.scales.fold_shift_axis import fold_shift_axis

fold_batchnorm_to_conv2d = FixedPointIteration(
    [fold_scale_axis, fold_shift_axis], name="fold_batchnorm_to_conv2d", opt_level=3
)
