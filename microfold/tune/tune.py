"""Tuning of a model: the cost model proposes variants and choices, and measurements decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from msgspec import Struct, field

from microfold.errors import MicrofoldError
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.passes.choices import PassChoice, Trace, trace_text
from microfold.tune.database import Database
from microfold.tune.measure import Job, Runner
from microfold.tune.measuring import Measuring, Progress, silent
from microfold.tune.plans import alternatives, best_plan, better
from microfold.tune.records import ProgramRecord
from microfold.tune.setting import Setting
from microfold.tune.space import Compiled, Subject, TunedLayer, most_promising, proposals, rounds
from microfold.workers.executor import Executor

# Maximum number of measured variants per layer, and of measured alternatives for the whole model.
CANDIDATES = 8
# Maximum number of iterations of selection by measurements and measurement of the selected program.
DECISIONS = 4


class TunedKernel(Struct, frozen=True):
    """Layer before and after tuning. Cycles are measured, and summed over all its calls in a run.

    Attributes:
        before, after: variants; `before` is empty if the tuned program streams other layers together.
        variants: number of measured variants.
    """

    name: str
    before: str
    after: str
    cycles_before: int | None
    cycles_after: int | None
    variants: int


class TunedChoice(Struct, frozen=True):
    """Choice before and after tuning.

    Attributes:
        cycles: measured cycles of whole runs with each alternative. All other choices are by estimates.
    """

    name: str
    before: str
    after: str
    cycles: Mapping[str, int]


class Tuning(Struct, frozen=True):
    """Result of tuning a model at one optimisation level.

    Attributes:
        choices: choices with several alternatives.
        total_before, total_after: measured cycles of whole runs with the choices by estimates, and by
            measurements; None if the measurement failed.
        ram, flash: size of arena and state, and of constants, of the tuned program, in bytes.
        estimate: estimated cycles of a whole run of the tuned program, if the target has a cycle model.
        error: maximum error of the cycle model, in percent, on top of the error of its counts; None: not
            known.
        programs: number of measured programs.
        left_out: jobs that could not be measured, with the reasons.
        failed_before: jobs that were skipped because they had failed in an earlier tuning, with the reasons.
        boards_lost: reason for each board that has failed.
    """

    optimize: str
    where: str
    layers: Sequence[TunedKernel]
    total_before: int | None
    total_after: int | None
    ram: int
    flash: int
    choices: Sequence[TunedChoice] = ()
    estimate: int | None = None
    error: int | None = None
    programs: int = 0
    left_out: Sequence[str] = ()
    failed_before: Sequence[str] = ()
    boards_lost: Mapping[str, str] = field(default_factory=dict[str, str])


class Tuner:
    """Tuner of models on one kind of board.

    Args:
        database: receives all measurements immediately. Its measurements are not repeated.
        lanes: lanes of the executor, or boards of the runner.
        candidates: maximum number of variants per layer, and of alternatives, to measure.
        max_trials: maximum number of variants and alternatives to measure, over all layers of all subjects;
            None: no limit. Programs selected by estimates and measurements are measured in any case.
        layers: names, numbers or operators of the layers to tune, without other alternatives; empty: all.
        retry: whether to repeat measurements that have failed before.
    """

    def __init__(
        self,
        executor: Executor,
        runner: Runner,
        lanes: Sequence[str],
        database: Database,
        *,
        candidates: int = CANDIDATES,
        max_trials: int | None = None,
        layers: Sequence[str] = (),
        retry: bool = False,
        progress: Progress | None = None,
    ):
        self._executor = executor
        self._trials = _Trials(max_trials)
        self._layers = layers
        self._runner = runner
        self._lanes = list(lanes)
        self._database = database
        self._candidates = candidates
        self._retry = retry
        self._progress = progress or silent
        self._boards_lost: dict[str, str] = {}

    def tune(self, subject: Subject) -> Tuning:
        """Measure variants and alternatives that can make a model faster.

        Raises:
            MicrofoldError: the model cannot be compiled.
            ToolError: no board is left.
        """
        self._runner.check(subject.target, subject.options)
        setting, program = self._runner.setting(subject.target, subject.options), subject.key
        if self._retry:
            self._database.forget_failures(setting, program)
        measuring = Measuring(
            self._executor, self._runner, self._lanes, self._database, setting, program, self._progress
        )
        search = _Search(
            subject,
            setting,
            program,
            self._database,
            measuring,
            self._candidates,
            self._trials,
            self._layers,
        )
        try:
            search.run()
            measuring.finish()
        finally:
            self._lanes = measuring.lanes
            self._boards_lost |= measuring.lost
        return search.result(self._boards_lost)


@dataclass
class _Trials:
    """Budget of measurements.

    Attributes:
        left: remaining number of measurements; None: no limit.
    """

    left: int | None

    def take(self, wanted: int) -> int:
        """Deduct and return the wanted number, or the remaining number if it is smaller."""
        if self.left is None:
            return wanted
        taken = min(wanted, self.left)
        self.left -= taken
        return taken


@dataclass(eq=False)
class _ProgramChoices:
    """Choices for the whole program, with the best kernels for them.

    Attributes:
        before: compilation with kernels by estimates.
        after: compilation with kernels by measurements.
    """

    trace: Trace
    before: Compiled
    after: Compiled


class _Search:
    """Search for the best program of a subject."""

    def __init__(
        self,
        subject: Subject,
        setting: Setting,
        program: str,
        database: Database,
        measuring: Measuring,
        candidates: int,
        trials: _Trials,
        only: Sequence[str],
    ):
        self._subject = subject
        self._trials = trials
        self._only = only
        self._setting = setting
        self._program = program
        self._database = database
        self._measuring = measuring
        self._candidates = candidates
        self._failed = {
            (each.layer, each.variant): each.reason for each in database.failures(setting, program)
        }
        self._passed_over: dict[tuple[str, str], str] = {}
        self._builds: dict[str, _ProgramChoices] = {}
        self._tried: set[tuple[str, str]] = set()
        self._kernels_tried: set[tuple[str, str]] = set()
        self._choices: Sequence[PassChoice] = ()

    def run(self) -> None:
        """Measure the choices by estimates, each other alternative alone, then the best ones together."""
        base = Compiled(self._subject, listing=True)
        base.selected(self._only)  # rejects wrong names before the first measurement
        self._choices = base.choices if not self._only else []
        self._best = self._build({}, base)
        self._tune([self._best])
        if not self._records:
            return  # nothing was measured to compare with
        others = [self._compiled(trace) for trace in alternatives(self._choices, self._candidates)]
        builds = [self._build(other.trace, other) for other in others if other is not None]
        self._tune(builds[: self._trials.take(len(builds))])
        best = self._better_alone()
        together = self._compiled(best) if len(best) > 1 else None
        if together is not None:
            self._tune([self._build(best, together)])
        # Program of a build with all measurements so far.
        trace = best_plan(self._records, self._subject.options).trace
        self._best = self._builds.get(trace_text(trace)) or self._build(trace, self._with(trace))
        self._tune([self._best])

    def result(self, boards_lost: Mapping[str, str]) -> Tuning:
        """Return the result of the search."""
        subject, base, best = self._subject, self._builds[""], self._best
        cycles = best_plan(self._records, subject.options).cycles
        model = subject.target.cycle_model
        return Tuning(
            subject.options.optimize,
            self._setting.where,
            self._compare(best.before, best.after),
            cycles.get(base.before.code),
            cycles.get(best.after.code),
            best.after.ram,
            best.after.program.weight_bytes,
            [self._compare_choice(choice, cycles) for choice in self._choices],
            best.after.program.estimated_cycles,
            model.error if model is not None else None,
            self._measuring.measured,
            self._measuring.left_out,
            sorted(self._passed_over.values()),
            dict(boards_lost),
        )

    @property
    def _records(self) -> list[ProgramRecord]:
        return self._database.programs(self._setting, self._program)

    def _build(self, trace: Trace, compiled: Compiled) -> _ProgramChoices:
        build = _ProgramChoices(trace, compiled, compiled)
        self._builds[trace_text(trace)] = build
        return build

    def _with(self, trace: Trace) -> Compiled:
        return Compiled(self._subject, trace=trace)

    def _compiled(self, trace: Trace) -> Compiled | None:
        """Return the compilation with certain choices; None if it fails, is too large, or has known code."""
        found = self._with(trace)
        try:
            known = {build.before.code for build in self._builds.values()}
            return None if found.too_large or found.code in known else found
        except MicrofoldError:
            return None

    def _tune(self, builds: Sequence[_ProgramChoices]) -> None:
        """Measure programs and their kernels, then the programs with the best kernels by measurements."""
        self._measuring.measure([job for build in builds for job in self._whole(build)])
        works = {record.trace for record in self._records}
        # If the first program fails, a kernel may be the cause, so its kernels are measured anyway.
        builds = [build for build in builds if not build.trace or trace_text(build.trace) in works]
        jobs: list[Job] = []
        known = {*self._database.figures(self._setting), *self._kernels_tried}
        for build in builds:
            layers = build.before.selected(self._only)
            tried = self._within_budget(layers, self._without_failed(layers, known))
            for forced in rounds(layers, tried, self._candidates):
                kinds = {number: layers[number].key for number in forced}
                jobs.append(Job(self._subject, forced, build.trace, kinds=kinds))
                known |= {(kinds[number], variant) for number, variant in forced.items()}
        self._kernels_tried |= known
        self._measuring.measure(jobs)
        found: object = None
        for _ in range(DECISIONS):
            before = found
            found = self._database.figures(self._setting), self._database.failed_variants(self._setting)
            if found == before:
                break
            for build in builds:
                build.after = self._decided(build.trace)
            # Measurements of kernels that had only estimates can change the selection.
            jobs = [job for build in builds for job in self._whole(build)]
            if not jobs:
                break
            self._measuring.measure(jobs)

    def _whole(self, build: _ProgramChoices) -> list[Job]:
        """Return the job that measures a program, unless it is already measured or has failed before."""
        code = build.after.code
        tried = trace_text(build.trace), code
        if tried in self._tried or any((record.trace, record.code) == tried for record in self._records):
            return []
        self._tried.add(tried)
        if ("", code) in self._failed:
            self._passed_over["", code] = self._failed["", code]
            return []
        costs = self._costs() if build.after.costs is not None else None
        return [Job(self._subject, {}, build.trace, costs, code=code)]

    def _decided(self, trace: Trace) -> Compiled:
        return Compiled(self._subject, costs=self._costs(), trace=trace)

    def _costs(self) -> MeasuredCosts | None:
        """Return the measured costs of kernels, if any, as plain data for other processes."""
        return self._database.costs(self._setting)

    def _without_failed(
        self, layers: Mapping[int, TunedLayer], known: Set[tuple[str, str]]
    ) -> set[tuple[str, str]]:
        """Return the known variants and the failed ones, and record the failed proposals."""
        for layer in layers.values():
            for variant in proposals(layer, self._candidates):
                if (layer.key, variant) in self._failed:
                    self._passed_over[layer.key, variant] = self._failed[layer.key, variant]
        return {*known, *self._failed}

    def _within_budget(
        self, layers: Mapping[int, TunedLayer], known: set[tuple[str, str]]
    ) -> set[tuple[str, str]]:
        """Return the variants not to measure: known ones, and all beyond the budget."""
        wanted = most_promising(layers, known, self._candidates)
        return known.union(wanted[self._trials.take(len(wanted)) :])

    def _better_alone(self) -> Trace:
        """Return the best alternative of each choice, if it is better by itself."""
        found: dict[str, str] = {}
        for trace, _ in better(self._records, self._subject.options):
            if len(trace) == 1:
                found = {**trace, **found}
        return found

    def _compare(self, before: Compiled, after: Compiled) -> list[TunedKernel]:
        figures = self._database.figures(self._setting)
        was, found = before.named, list[TunedKernel]()

        def cycles(layer: TunedLayer) -> int | None:
            figure = figures.get((layer.key, layer.chosen))
            return figure.cycles * layer.runs if figure is not None else None

        for name, layer in after.named.items():
            old = was.get(name)
            kernel, took = (old.chosen, cycles(old)) if old is not None else ("", None)
            measured = sum(key == layer.key for key, _ in figures)
            found.append(TunedKernel(name, kernel, layer.chosen, took, cycles(layer), measured))
        return found

    def _compare_choice(self, choice: PassChoice, cycles: Mapping[str, int]) -> TunedChoice:
        """Return a choice with the cycles of its alternatives. `cycles` has cycles by program code."""
        found: dict[str, int] = {}
        alone = [build for build in self._builds.values() if len(build.trace) <= 1]
        for compiled in (each for build in alone for each in (build.before, build.after)):
            taken, took = compiled.answers.get(choice.name), cycles.get(compiled.code)
            if taken is not None and took is not None:
                found[taken] = min(took, found.get(taken, took))
        after = self._best.after.answers.get(choice.name, choice.taken)
        return TunedChoice(choice.name, choice.taken, after, found)
