"""One measurement, as a worker makes it: compile, build, run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

from microfold import __version__
from microfold.errors import MicrofoldError, RunError
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.options import Options
from microfold.passes.choices import Trace
from microfold.program import Program
from microfold.simulate.program import simulator
from microfold.support.frozen import frozen
from microfold.target import Target
from microfold.tune.records import Record
from microfold.tune.setting import Setting, simulated_setting
from microfold.tune.space import Compiled, Subject
from microfold.verification.verify import input_sets


class RunnerError(MicrofoldError):
    """What runs the code failed or hung, whatever the code is."""


@frozen
class Times:
    """What a program took.

    Attributes:
        total: cycles of a whole run, the fewest of all runs.
        layers: of each layer the cycles in each run: of all calls, without rows that are moved for them.
    """

    total: int
    layers: Sequence[Sequence[int]]


class Runner(Protocol):
    """What measures programs."""

    def setting(self, target: Target, options: Options) -> Setting:
        """Where and how it measures."""
        ...

    def check(self, target: Target, options: Options) -> None:
        """Raises a MicrofoldError if it can measure nothing of such code for a target."""
        ...

    def times(self, program: Program, lane: str) -> Times:
        """What a program takes.

        Args:
            lane: which of several equal boards, see `microfold.tune.board_runner`.

        Raises:
            RunnerError: the board failed.
            MicrofoldError: the program cannot be built or run.
        """
        ...


@frozen
class SimulatedRunner:
    """Cycles by the core's model, of what QEMU executes."""

    def setting(self, target: Target, options: Options) -> Setting:
        return simulated_setting(target, options)

    def check(self, target: Target, options: Options) -> None:
        if target.cycle_model is None or not target.board:
            raise RunnerError(
                f"a core is simulated with a board of QEMU's and a model of its cycles; {target.name} lacks "
                "one: measure on a board of yours with --runner-command"
            )

    def times(self, program: Program, lane: str) -> Times:
        del lane
        model = program.target.cycle_model
        assert model is not None  # checked
        calls = input_sets([buffer.type for buffer in program.inputs], 4)[3:]
        with simulator(program) as machine:
            cycles = machine.trace(calls, model, only_calls=program.stream is not None)
        return Times(cycles.total[-1], [(each,) for each in cycles.layers[-1]])


@frozen
class Job:
    """A program to measure.

    Attributes:
        forced, trace, costs: as for `Compiled`.
        kinds: keys of the layers whose variants are forced, by their numbers.
        code: `Compiled.code` of a program as builds make it, of which whole runs count; empty: it is none.
    """

    subject: Subject
    forced: Mapping[int, str] = field(default_factory=dict[int, str])
    trace: Trace = field(default_factory=dict[str, str])
    costs: MeasuredCosts | None = None
    kinds: Mapping[int, str] = field(default_factory=dict[int, str])
    code: str = ""


@frozen
class Outcome:
    """What became of a job.

    Attributes:
        problem: why there are no times; empty if there are.
        divisible: with fewer layers forced there may be some.
        runner_failed: it is not the program's fault.
        program_failed: it was built, and has failed as it ran.
        total: cycles of a run.
        ram, flash: see `Compiled`.
        records: of the layers that can be tuned.
        version: of the microfold that compiled it.
    """

    problem: str = ""
    divisible: bool = False
    runner_failed: bool = False
    program_failed: bool = False
    total: int = 0
    ram: int = 0
    flash: int = 0
    records: tuple[Record, ...] = ()
    version: str = __version__


def measure(runner: Runner, job: Job, lane: str) -> Outcome:
    """Measures a program; what fails is part of the outcome."""
    compiled = Compiled(job.subject, job.forced, job.costs, job.trace)
    try:
        too_large = compiled.too_large
        if too_large:
            return Outcome(too_large, divisible=True)
        times = runner.times(compiled.program, lane)
    except RunnerError as error:
        return Outcome(str(error), runner_failed=True)
    except MicrofoldError as error:
        # It may be too large for the board.
        return Outcome(str(error), divisible=True, program_failed=isinstance(error, RunError))
    return Outcome(
        total=times.total, ram=compiled.ram, flash=compiled.flash, records=_records(compiled, times)
    )


def _records(compiled: Compiled, times: Times) -> tuple[Record, ...]:
    """Of the layers that can be tuned, a call; none of those whose time is 0, which no code takes."""
    found: list[Record] = []
    for layer, cycles in zip(compiled.program.layers, times.layers, strict=True):
        if layer.index in compiled.numbers and min(cycles) > 0:
            number = compiled.numbers[layer.index]
            tuned = compiled.layers[number]
            least, most = (round(each / tuned.runs) for each in (min(cycles), max(cycles)))
            estimate = float(layer.kernel.cycles(tuned.layer))
            found.append(Record(tuned.key, compiled.taken(layer), least, most, len(cycles), estimate))
    return tuple(found)
