"""What planners of the arena may do besides keeping storages apart."""

from __future__ import annotations

from typing import NamedTuple

from microfold.ir.views import ALIGNMENT
from microfold.plan.liveness import Storage
from microfold.support.frozen import frozen


@frozen
class Overlap:
    """Leave for an output to lie over an input that dies in the call that computes the output.

    Attributes:
        distance: smallest allowed ``source offset - target offset``, in bytes.
        exact: only this very distance is allowed.
    """

    source: Storage
    target: Storage
    distance: int
    exact: bool = False


class Leave(NamedTuple):
    """The same for the first output, of an input that dies or not, depending on the order of calls."""

    source: Storage
    distance: int
    exact: bool


def align(offset: int, alignment: int = ALIGNMENT) -> int:
    """The next multiple of the alignment."""
    return -(-offset // alignment) * alignment
