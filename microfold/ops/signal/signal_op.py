"""Base class of the operators of audio front ends."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.op import Op


class SignalOp(Op, frozen=True):
    """Base of operators on samples, spectra and energies, which use integers without regard to scales."""

    any_zero_point: ClassVar[bool] = True
