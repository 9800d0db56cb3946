"""Tuning a model: the cost model proposes variants, measurement decides between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from microfold import __version__
from microfold.errors import ToolError
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.tune.database import Database
from microfold.tune.measure import Job, Outcome, Runner, measure
from microfold.tune.setting import Setting
from microfold.tune.space import Compiled, Subject, rounds
from microfold.workers.dispatch import Dispatcher, Done
from microfold.workers.executor import Executor

# Variants of a layer that are measured at most.
CANDIDATES = 8
# How often the choice is made anew with what was measured of the last one.
DECISIONS = 4


@dataclass(frozen=True)
class TunedKernel:
    """A layer before and after; cycles are measured.

    Attributes:
        variants: how many were measured.
    """

    name: str
    before: str
    after: str
    cycles_before: int | None
    cycles_after: int | None
    variants: int


@dataclass(frozen=True)
class Tuning:
    """What tuning a model at one level has led to.

    Attributes:
        total_before, total_after: cycles of whole runs, measured: as estimates choose, and as measurements
            do; None if that failed.
        ram, flash: bytes of arena and state, and of constants, of the tuned program.
        estimate: cycles of a whole run of the tuned program, by the cost model, if the target has one.
        programs: that were measured.
        left_out: what could not be measured, and why.
        boards_lost: those that failed, and why.
    """

    optimize: str
    where: str
    layers: Sequence[TunedKernel]
    total_before: int | None
    total_after: int | None
    ram: int
    flash: int
    estimate: int | None = None
    programs: int = 0
    left_out: Sequence[str] = ()
    boards_lost: Mapping[str, str] = field(default_factory=dict[str, str])


# Called with how many programs have been measured, and how many there are as far as is known.
Progress = Callable[[int, int], None]


def silent(_done: int, _total: int) -> None:
    """Progress that nobody sees."""


class Tuner:
    """Tunes models on one kind of board.

    Args:
        database: what is measured goes there at once, and what is there is not measured again.
        lanes: of the executor, or boards of the runner.
        candidates: variants of a layer that are measured at most.
    """

    def __init__(
        self,
        executor: Executor,
        runner: Runner,
        lanes: Sequence[str],
        database: Database,
        *,
        candidates: int = CANDIDATES,
        progress: Progress | None = None,
    ):
        self._executor = executor
        self._runner = runner
        self._lanes = list(lanes)
        self._database = database
        self._candidates = candidates
        self._progress = progress or silent
        self._boards_lost: dict[str, str] = {}

    def tune(self, subject: Subject) -> Tuning:
        """Measures what may make a model faster.

        Raises:
            MicrofoldError: the model cannot be compiled.
            ToolError: no board is left.
        """
        self._runner.check(subject.target, subject.options)
        setting = self._runner.setting(subject.target, subject.options)
        before = Compiled(subject)
        known = set(self._database.figures(setting))
        plain = Job(subject)
        jobs = [Job(subject, forced) for forced in rounds(before.layers, known, self._candidates)]
        outcomes, left_out = self._measure(setting, [plain, *jobs])
        after = self._decide(setting, subject)
        last = plain
        for _ in range(DECISIONS):
            if after.selected == before.selected:
                last = plain
                break
            last = Job(subject, after.selected)
            more, problems = self._measure(setting, [last])
            outcomes, left_out = [*outcomes, *more], [*left_out, *problems]
            # What is measured of kernels that were estimated may change the choice.
            decided = self._decide(setting, subject)
            if decided.selected == after.selected:
                break
            after = decided
        totals = {id(job): outcome.total for job, outcome in outcomes}
        return Tuning(
            subject.options.optimize,
            setting.where,
            self._compare(setting, before, after),
            totals.get(id(plain)),
            totals.get(id(last)),
            after.program.arena.size + after.program.state_size,
            after.program.weight_bytes,
            after.program.estimated_cycles,
            len(outcomes),
            left_out,
            dict(self._boards_lost),
        )

    def _decide(self, setting: Setting, subject: Subject) -> Compiled:
        """What a build makes of the measurements that there are."""
        figures = self._database.figures(setting)
        return Compiled(subject, costs=MeasuredCosts(figures, setting.where) if figures else None)

    def _compare(self, setting: Setting, before: Compiled, after: Compiled) -> list[TunedKernel]:
        """All layers that can be tuned."""
        figures = self._database.figures(setting)
        names = {after.numbers.get(layer.index): layer.name for layer in after.program.layers}
        found: list[TunedKernel] = []
        for number, layer in before.layers.items():
            cycles = {v: f.cycles for (key, v), f in figures.items() if key == layer.key}
            was, taken = layer.chosen, after.selected[number]
            found.append(
                TunedKernel(names[number], was, taken, cycles.get(was), cycles.get(taken), len(cycles))
            )
        return found

    def _measure(self, setting: Setting, jobs: Sequence[Job]) -> tuple[list[tuple[Job, Outcome]], list[str]]:
        """What becomes of jobs, and what could not be measured; those that are too large are divided."""
        work: Dispatcher[Job, Outcome] = Dispatcher(
            self._executor,
            partial(measure, self._runner),
            self._lanes,
            lambda outcome: outcome.problem if outcome.runner_failed else "",
            lambda outcome: not outcome.problem,
        )
        work.add(jobs)
        found: list[tuple[Job, Outcome]] = []
        left_out: list[str] = []
        done, total = 0, len(jobs)
        self._progress(done, total)
        for each in work.results():
            done += 1
            outcome, parts, problem = _judge(each)
            if outcome is not None:
                self._database.add(setting, outcome.records)
                found.append((each.task, outcome))
            elif parts:
                total += len(parts)
                work.add(parts)
            else:
                left_out.append(problem)
            self._progress(done, total)
        self._lanes = [lane for lane in self._lanes if lane not in work.lost]
        self._boards_lost |= work.lost
        if work.left:
            reasons = "; ".join(f"{lane}: {reason}" for lane, reason in self._boards_lost.items())
            raise ToolError(
                f"tuning needs a board that works; none is left ({reasons}); {len(found)} of {total} "
                "programs are measured, and kept: mend it and run the command again"
            )
        return found, sorted(left_out)


def _judge(done: Done[Job, Outcome]) -> tuple[Outcome | None, list[Job], str]:
    """What a piece of work has given: an outcome, or smaller jobs, or why there is nothing."""
    outcome, job = done.result, done.task
    problem = done.problem
    if outcome is not None:
        if outcome.version != __version__:
            problem = f"a worker has microfold {outcome.version}, not {__version__}"
        elif not outcome.problem:
            return outcome, [], ""
        else:
            problem = outcome.problem
            if outcome.divisible and len(job.forced) > 1:
                return None, _halves(job), ""
    elif done.lanes_failed and len(job.forced) > 1:
        return None, _halves(job), ""  # one of its kernels may be what boards fail with
    variants = ", ".join(job.forced[number] for number in sorted(job.forced)) or "the kernels as estimated"
    return None, [], f"{variants}: {problem}"


def _halves(job: Job) -> list[Job]:
    forced = sorted(job.forced.items())
    middle = len(forced) // 2
    return [Job(job.subject, dict(part)) for part in (forced[:middle], forced[middle:])]
