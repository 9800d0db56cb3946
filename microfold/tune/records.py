"""What a database has: what kernels took, what programs took, and what failed."""

from __future__ import annotations

from microfold.kernels.selection.measured import Figure
from microfold.support.frozen import frozen


@frozen(order=True)
class Record:
    """What the calls of a kernel took.

    Attributes:
        layer, variant: keys, see `microfold.kernels.selection.measured`.
        cycles: the fewest.
        slowest: the most.
        runs: how many calls.
        estimate: cycles that the cost model had said.
    """

    layer: str
    variant: str
    cycles: int
    slowest: int
    runs: int
    estimate: float

    @property
    def figure(self) -> Figure:
        return Figure(self.cycles, self.estimate)


@frozen(order=True)
class ProgramRecord:
    """What whole runs of a program took, as a build makes it.

    Attributes:
        program: of what it is made, see `identity.program_key`.
        trace: by which choices, see `choices.trace_text`.
        code: see `identity.code_digest`.
        cycles: the fewest.
        ram: bytes of arena and state.
        flash: of constants, and of code by estimate.
    """

    program: str
    trace: str
    code: str
    cycles: int
    ram: int
    flash: int


@frozen(order=True)
class Failure:
    """What could not be measured because it failed wherever it ran, though other programs did not.

    Attributes:
        program: in which, see `identity.program_key`.
        layer, variant: keys as of a `Record`; of a whole program, none and its `identity.code_digest`.
        reason: what became of it.
    """

    program: str
    layer: str
    variant: str
    reason: str
