"""What the operators of audio front ends have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from microfold.ir.op import Op


@dataclass(frozen=True)
class SignalOp(Op):
    """Base of operators on samples, spectra and energies: integers as they are, whatever their scale."""

    any_zero_point: ClassVar[bool] = True
