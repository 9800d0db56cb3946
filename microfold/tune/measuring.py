"""Jobs over lanes: what is measured goes into the database, and so does what failed wherever it ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from microfold import __version__
from microfold.errors import ToolError
from microfold.passes.choices import trace_text
from microfold.tune.database import Database
from microfold.tune.measure import Job, Outcome, Runner, measure
from microfold.tune.records import Failure, ProgramRecord
from microfold.tune.setting import Setting
from microfold.workers.dispatch import Dispatcher, Done
from microfold.workers.executor import Executor

# Called with how many programs are done, and how many there are so far: measurements lead to further ones.
Progress = Callable[[int, int], None]


def silent(_done: int, _total: int) -> None:
    """Progress that nobody sees."""


class Measuring:
    """Measures jobs of one subject, in one setting.

    A failure is kept only if something was measured after it: it is not that of boards or tools, then.

    Args:
        program: `Subject.key`.
    Attributes:
        lanes: those that are not left out.
        lost: the others, with the reasons.
        measured: how many programs were.
        left_out: what could not be measured, and why.
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
        """Jobs, and parts of those that are too large.

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
                f"tuning needs a board that works; none is left ({reasons}); {self.measured - before} of "
                f"{self._total - begun} programs are measured, and kept: mend it and run the command again"
            )

    def _count(self, *, done: int = 0, total: int = 0) -> None:
        """Say that more programs are done, or that there are more."""
        self._done += done
        self._total += total
        self._progress(self._done, self._total)

    def finish(self) -> None:
        """Sees whether what was measured before can be measured still, if something has failed since then.

        Raises:
            ToolError: it cannot.
        """
        if not self._failures or self._works is None:
            return
        failed, before = self._failures[-1].reason, self.measured
        self.measure([self._works])
        if self.measured == before:
            raise ToolError(
                f"tuning needs a board that works; with what was measured before it does not any more, since "
                f"{failed}: mend it and run the command again, which goes on from what is measured"
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

    def _failure(self, done: Done[Job, Outcome], problem: str) -> list[Failure]:
        """A job as what is not to be begun again; none if it may work another time, or has no name."""
        job, outcome = done.task, done.result
        failed = done.lanes_failed or done.killed or (outcome is not None and outcome.program_failed)
        if not failed or (len(job.forced) != 1 and not job.code):
            return []
        if job.code:
            return [Failure(self._program, "", job.code, problem)]
        ((number, variant),) = job.forced.items()
        return [Failure(self._program, job.kinds[number], variant, problem)]


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
    return None, [], f"{_told(job)}: {problem}"


def _told(job: Job) -> str:
    """What is measured by a job, for people."""
    variants = ", ".join(job.forced[number] for number in sorted(job.forced))
    choices = ", ".join(f"{name}: {taken}" for name, taken in sorted(job.trace.items()))
    kernels = "the kernels as measured" if job.costs is not None else "the kernels as estimated"
    return "; ".join(filter(None, [choices, variants or kernels]))


def _halves(job: Job) -> list[Job]:
    forced = sorted(job.forced.items())
    middle = len(forced) // 2
    return [replace(job, forced=dict(part), code="") for part in (forced[:middle], forced[middle:])]
