"""Records of a database: times of kernels, times of programs, and failures."""

from __future__ import annotations

from msgspec import Struct

from microfold.kernels.selection.measured import CallCost


class MeasurementRecord(Struct, frozen=True, order=True):
    """Measured time of a kernel call.

    Attributes:
        layer, variant: keys, see `microfold.kernels.selection.measured`.
        cycles: minimum cycles.
        slowest: maximum cycles.
        runs: number of measurements.
        estimate: cycles by the cost model.
    """

    layer: str
    variant: str
    cycles: int
    slowest: int
    runs: int
    estimate: float

    @property
    def figure(self) -> CallCost:
        return CallCost(self.cycles, self.estimate)


class ProgramRecord(Struct, frozen=True, order=True):
    """Measured time of whole runs of a program that a build can create.

    Attributes:
        program: see `identity.program_key`.
        trace: choices of the program, see `choices.trace_text`.
        code: see `identity.code_digest`.
        cycles: minimum cycles.
        ram: size of arena and state, in bytes.
        flash: size of constants and estimated code, in bytes.
    """

    program: str
    trace: str
    code: str
    cycles: int
    ram: int
    flash: int


class Failure(Struct, frozen=True, order=True):
    """Kernel or program that failed in all lanes, while other programs succeeded.

    Attributes:
        program: program of the failure, see `identity.program_key`.
        layer, variant: keys as in a `MeasurementRecord`; for a whole program, an empty text and
        `identity.code_digest`.
    """

    program: str
    layer: str
    variant: str
    reason: str
