"""Execution of jobs in lanes. Measurements and repeated failures are written to the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from microfold import __version__
from microfold.errors import ToolError
from microfold.passes.choices import trace_text
from microfold.tune.database import Database
from microfold.tune.measure import Job, Outcome, Runner, measure
from microfold.tune.records import Failure, ProgramRecord
from microfold.tune.setting import Setting
from microfold.workers.dispatch import Dispatcher, FinishedTask
from microfold.workers.executor import Executor

# Called with the number of finished programs, and the number of programs so far, which can grow.
Progress = Callable[[int, int], None]


def silent(_done: int, _total: int) -> None:
    """Ignore the progress."""


class Measuring:
    """Measurement of the jobs of one subject, in one setting.

    A failure is stored only if a later measurement succeeds, which shows that boards and tools still work.

    Args:
        program: `Subject.key`.
    Attributes:
        lanes: working lanes.
        lost: reason for each excluded lane.
        measured: number of measured programs.
        left_out: jobs that could not be measured, with the reasons.
    """

    def __init__(
        self,
        executor: Executor,
        runner: Runner,
        lanes: Sequence[str],
        database: Database,
        setting: Setting,
        program: str,
        progress: Progress = silent,
    ):
        self._executor = executor
        self._runner = runner
        self._database = database
        self._setting = setting
        self._program = program
        self._progress = progress
        self._done = 0
        self._total = 0
        self._failures: list[Failure] = []
        self._works: Job | None = None
        self.lanes = list(lanes)
        self.lost: dict[str, str] = {}
        self.measured = 0
        self.left_out: list[str] = []

    def measure(self, jobs: Sequence[Job]) -> None:
        """Measure jobs, and parts of jobs that are too large.

        Raises:
            ToolError: no lane is left.
        """
        work: Dispatcher[Job, Outcome] = Dispatcher(
            self._executor,
            partial(measure, self._runner),
            self.lanes,
            lambda outcome: outcome.problem if outcome.runner_failed else "",
            lambda outcome: not outcome.problem,
        )
        work.add(jobs)
        left_out: list[str] = []
        before, begun = self.measured, self._total
        self._count(total=len(jobs))
        for each in work.results():
            outcome, parts, problem = _judge(each)
            if outcome is not None:
                self._keep(each.task, outcome)
            elif parts:
                self._count(total=len(parts))
                work.add(parts)
            else:
                left_out.append(problem)
                self._failures += self._failure(each, problem)
            self._count(done=1)
        self.left_out += sorted(left_out)
        self.lanes = [lane for lane in self.lanes if lane not in work.lost]
        self.lost |= work.lost
        if work.left:
            reasons = "; ".join(f"{lane}: {reason}" for lane, reason in self.lost.items())
            raise ToolError(
                f"tuning requires a working board; none is left ({reasons}); {self.measured - before} of "
                f"{self._total - begun} programs are measured and stored: repair it and run the command again"
            )

    def _count(self, *, done: int = 0, total: int = 0) -> None:
        self._done += done
        self._total += total
        self._progress(self._done, self._total)

    def finish(self) -> None:
        """After failures, check that a program that was measured before can still be measured.

        Raises:
            ToolError: the program can no longer be measured.
        """
        if not self._failures or self._works is None:
            return
        failed, before = self._failures[-1].reason, self.measured
        self.measure([self._works])
        if self.measured == before:
            raise ToolError(
                f"tuning requires a working board; it fails with a program that was measured before, since "
                f"{failed}: repair it and run the command again, which continues from the measurements"
            )

    def _keep(self, job: Job, outcome: Outcome) -> None:
        rows: list[ProgramRecord | Failure] = [*self._failures]
        if job.code:
            made = trace_text(job.trace), job.code, outcome.total, outcome.ram, outcome.flash
            rows.append(ProgramRecord(self._program, *made))
        self._database.add(self._setting, [*outcome.records, *rows])
        self._failures.clear()
        if job.code or self._works is None:
            self._works = job
        self.measured += 1

    def _failure(self, done: FinishedTask[Job, Outcome], problem: str) -> list[Failure]:
        """Return the failure of a job that must not be repeated; empty if a repetition may succeed."""
        job, outcome = done.task, done.result
        failed = done.lanes_failed or done.killed or (outcome is not None and outcome.program_failed)
        if not failed or (len(job.forced) != 1 and not job.code):
            return []
        if job.code:
            return [Failure(self._program, "", job.code, problem)]
        ((number, variant),) = job.forced.items()
        return [Failure(self._program, job.kinds[number], variant, problem)]


def _judge(done: FinishedTask[Job, Outcome]) -> tuple[Outcome | None, list[Job], str]:
    """Return the outcome of a job, or smaller jobs, or the reason why it has failed."""
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
        return None, _halves(job), ""  # one of its kernels may be the cause
    return None, [], f"{_told(job)}: {problem}"


def _told(job: Job) -> str:
    variants = ", ".join(job.forced[number] for number in sorted(job.forced))
    choices = ", ".join(f"{name}: {taken}" for name, taken in sorted(job.trace.items()))
    kernels = "the kernels as measured" if job.costs is not None else "the kernels as estimated"
    return "; ".join(filter(None, [choices, variants or kernels]))


def _halves(job: Job) -> list[Job]:
    forced = sorted(job.forced.items())
    middle = len(forced) // 2
    return [replace(job, forced=dict(part), code="") for part in (forced[:middle], forced[middle:])]
