"""Measurement of one program in a worker: compile, build, run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from microfold import __version__
from microfold.errors import MicrofoldError, RunError
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.options import Options
from microfold.passes.choices import Trace
from microfold.program import Program
from microfold.simulate.program import simulator
from microfold.target import Target
from microfold.tune.records import MeasurementRecord
from microfold.tune.setting import Setting, simulated_setting
from microfold.tune.space import Compiled, Subject
from microfold.verification.verify import input_sets


class RunnerError(MicrofoldError):
    """Error: the runner failed or hung, regardless of the code."""


class Times(Struct, frozen=True):
    """Measured times of a program.

    Attributes:
        total: minimum cycles of a whole run.
        layers: cycles of each layer in each run, summed over all calls, without copies of rows.
    """

    total: int
    layers: Sequence[Sequence[int]]


class Runner(Protocol):
    """Runner that measures programs."""

    def setting(self, target: Target, options: Options) -> Setting:
        """Return the setting of the measurements."""
        ...

    def check(self, target: Target, options: Options) -> None:
        """Raise a `MicrofoldError` if the runner cannot measure code with these options for the target."""
        ...

    def times(self, program: Program, lane: str) -> Times:
        """Return the measured times of a program.

        Args:
            lane: one of several equal boards, see `microfold.tune.board_runner`.

        Raises:
            RunnerError: the board failed.
            MicrofoldError: the program cannot be built or run.
        """
        ...


class SimulatedRunner(Struct, frozen=True):
    """Runner that applies the core's cycle model to the instructions executed by QEMU."""

    def setting(self, target: Target, options: Options) -> Setting:
        return simulated_setting(target, options)

    def check(self, target: Target, options: Options) -> None:
        if target.cycle_model is None or not target.board:
            raise RunnerError(
                f"simulation requires a QEMU board and a cycle model of the core; {target.name} lacks "
                "one: measure on your own board with --runner-command"
            )

    def times(self, program: Program, lane: str) -> Times:
        del lane
        model = program.target.cycle_model
        assert model is not None  # checked
        calls = input_sets([buffer.type for buffer in program.inputs], 4)[3:]
        with simulator(program) as machine:
            cycles = machine.trace(calls, model, only_calls=program.stream is not None)
        return Times(cycles.total[-1], [(each,) for each in cycles.layers[-1]])


class Job(Struct, frozen=True):
    """Program to measure.

    Attributes:
        forced, trace, costs: as for `Compiled`.
        kinds: keys of the layers with forced variants, by layer number.
        code: `Compiled.code` if whole runs of the program are recorded, because builds can create it; else
            empty.
    """

    subject: Subject
    forced: Mapping[int, str] = field(default_factory=dict[int, str])
    trace: Trace = field(default_factory=dict[str, str])
    costs: MeasuredCosts | None = None
    kinds: Mapping[int, str] = field(default_factory=dict[int, str])
    code: str = ""


class Outcome(Struct, frozen=True):
    """Outcome of a job.

    Attributes:
        problem: reason why there are no times; empty if the job has succeeded.
        divisible: whether the job may succeed with fewer forced layers.
        runner_failed: whether the runner has failed, not the program.
        program_failed: whether the program was built, but failed when it ran.
        total: cycles of a run.
        ram, flash: see `Compiled`.
        version: version of microfold that compiled the program.
    """

    problem: str = ""
    divisible: bool = False
    runner_failed: bool = False
    program_failed: bool = False
    total: int = 0
    ram: int = 0
    flash: int = 0
    records: tuple[MeasurementRecord, ...] = ()
    version: str = __version__


def measure(runner: Runner, job: Job, lane: str) -> Outcome:
    """Measure a program. Failures are part of the outcome."""
    compiled = Compiled(job.subject, job.forced, job.costs, job.trace)
    try:
        too_large = compiled.too_large
        if too_large:
            return Outcome(too_large, divisible=True)
        times = runner.times(compiled.program, lane)
    except RunnerError as error:
        return Outcome(str(error), runner_failed=True)
    except MicrofoldError as error:
        # The program may be too large for the board.
        return Outcome(str(error), divisible=True, program_failed=isinstance(error, RunError))
    return Outcome(
        total=times.total, ram=compiled.ram, flash=compiled.flash, records=_records(compiled, times)
    )


def _records(compiled: Compiled, times: Times) -> tuple[MeasurementRecord, ...]:
    """Return a record per call of each tunable layer, without layers of 0 cycles, which are impossible."""
    found: list[MeasurementRecord] = []
    for layer, cycles in zip(compiled.program.layers, times.layers, strict=True):
        if layer.index in compiled.numbers and min(cycles) > 0:
            number = compiled.numbers[layer.index]
            tuned = compiled.layers[number]
            least, most = (round(each / tuned.runs) for each in (min(cycles), max(cycles)))
            estimate = float(layer.kernel.cycles(tuned.layer))
            found.append(
                MeasurementRecord(tuned.key, compiled.taken(layer), least, most, len(cycles), estimate)
            )
    return tuple(found)
