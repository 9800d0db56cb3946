"""What the operators of audio front ends have in common."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op
from microfold.support.frozen import frozen


@frozen
class SignalOp(Op):
    """Base of operators on samples, spectra and energies: integers as they are, whatever their scale."""

    any_zero_point: ClassVar[bool] = True
