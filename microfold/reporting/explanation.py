"""Explanation of a build's decision: objective, proofs, the binding resources, and the nearest alternatives.

All figures are those of kernel selection: the same estimates, limits and integer program. An alternative is
the result of the same selection with one more restriction, for the same graph. Passes could decide otherwise
with another limit.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from microfold.codegen.names import Namer
from microfold.errors import BudgetError
from microfold.kernels.selection.candidates import LayerCandidates
from microfold.kernels.selection.objective import Objective, SelectionFigures
from microfold.kernels.selection.program import VariantChoice
from microfold.kernels.selection.selector import RunBounds, Selection
from microfold.lowering.choose import ChosenKernels
from microfold.lowering.chosen_kernels import StreamedModel, WholeTensors, streaming_decision
from microfold.lowering.prepared import PreparedProgram
from microfold.lowering.schedule import claim_name
from microfold.passes.context import Decision
from microfold.pipeline import default_pipeline

# Number of entries in lists of the largest layers, pieces of flash and reasons: one line each.
LARGEST = 3
# Share of the memory that the alternatives with less RAM or flash may use.
LESS = 0.99
# Name of a value in a reason: places that differ in names only are counted together.
_NAME = re.compile(r"%\S+(?<![:,;])")
# Sections of the pipeline whose decisions are explained.
FUSING = ("fusion", "storage")


class LimitUse(Struct, frozen=True):
    """Limit of a memory, in bytes.

    Attributes:
        binding: whether the build would be another without this limit: kernels would be better by the
            objective, or layers would not be streamed.
    """

    memory: str
    limit: int
    used: int
    binding: bool


class Share(Struct, frozen=True):
    """Part of a total.

    Attributes:
        name: layer, or piece of flash.
        amount: cycles or bytes.
        part: share of the total, 0 to 1.
    """

    name: str
    amount: float
    part: float


class RestrictedChoice(Struct, frozen=True):
    """Best kernels with one more restriction.

    Attributes:
        restriction: restriction, as text.
        change: figures of these kernels minus those of the build; None if no kernels keep the restriction.
        growth: relative growth of the objective's first sum, which is the cycles if they have any price.
        proved: whether it is proved that no kernels are better; false for streamed layers.
        kernel: kernel of the layer that the restriction is about, or empty.
        streamed: whether layers are streamed.
        impossible: without a change, the reason.
    """

    restriction: str
    change: SelectionFigures | None
    growth: float | None
    proved: bool
    kernel: str = ""
    streamed: bool = False
    impossible: str = ""


class PeakCalls(Struct, frozen=True):
    """Calls that determine the size of the arena.

    Attributes:
        layers: layers whose call needs most, or the run of calls that together need more.
        together: whether the layers are such a run.
        needs: bytes that they need; a lower bound if together.
        others: bytes that the call of every other layer needs at most.
        planned: bytes of the arena.
        bound: proved lower bound for these kernels and this order.
    """

    layers: Sequence[str]
    together: bool
    needs: int
    others: int
    planned: int
    bound: int


class PassSummary(Struct, frozen=True):
    """Decisions of passes.

    Attributes:
        fused: number of changes by pass that fuses operators or places values.
        rewritten: number of changes by other pass.
        declined: for the passes that fuse operators or place values, number of places by pass,
            operator and reason, the most frequent first.
    """

    fused: Sequence[tuple[str, int]]
    rewritten: Sequence[tuple[str, int]]
    declined: Sequence[tuple[str, int]]


class Explanation(Struct, frozen=True):
    """Decision of a build.

    Attributes:
        layers, streamed: number of layers, and of streamed ones.
        reference: figures that count as a hundred percent.
        state: bytes of RAM kept between runs, beside the arena.
        constants: bytes of constants in `figures.flash`; the remainder is estimated code.
        measured: number of layers whose cycles were measured.
        proved: whether no kernels are better by the objective, for this graph and order of calls.
        cycles_error: maximum error of the timing model in percent; None if unknown.
        peak: None if layers run others: their arena is not part of selection.
        streaming: reason why layers are streamed, or not.
    """

    model: str
    target: str
    optimize: str
    layers: int
    streamed: int
    objective: Objective
    reference: SelectionFigures
    figures: SelectionFigures
    state: int
    constants: int
    measured: int
    proved: bool
    cycles_error: int | None
    limits: Sequence[LimitUse]
    peak: PeakCalls | None
    time: Sequence[Share]
    flash: Sequence[Share]
    less: Sequence[RestrictedChoice]
    others: Sequence[RestrictedChoice]
    streaming: str
    passes: PassSummary


def explain(prepared: PreparedProgram) -> Explanation:
    """Return the explanation of a build.

    Raises:
        InputError: see `PreparedProgram.program`.
    """
    kernels, program = prepared.kernels, prepared.program
    model, selection = kernels.model, kernels.selection
    state = model.selected.scope.state_size
    question = _Question(kernels, {"RAM": state, "flash": 0})
    if isinstance(kernels, StreamedModel):
        rankings, order = kernels.streamed.rankings, [*range(len(kernels.chosen))]
        streamed = sum(layer.rows is not None for layer in program.layers)
    else:
        rankings, order, streamed = model.rankings, [*kernels.planned.order], 0
    names = _names(rankings, selection, order)
    figures = replace(kernels.figures, arena=program.arena.size)
    chosen = question.chosen
    slowest = sorted(chosen, key=lambda choice: -choice.cycles)[:LARGEST]
    plans = selection.plans
    return Explanation(
        model=program.name,
        target=model.target.name,
        optimize=model.options.optimize,
        layers=len(chosen),
        streamed=streamed,
        objective=selection.objective,
        reference=selection.selector.reference,
        figures=figures,
        state=state,
        constants=sum({k: n for c in chosen for k, n in c.variant.constants.items()}.values()),
        measured=sum(candidate.measured is not None for candidate in selection.candidates),
        proved=selection.proved,
        cycles_error=model.target.cycle_model.error if model.target.cycle_model is not None else None,
        limits=_limits(question, figures, forced=streamed > 0 and model.options.io != "rows"),
        peak=None if plans is None else _peak(question, names, figures.arena, program.arena.bound),
        time=[
            _share(f"{names[c.variant.layer]} ({c.variant.kernel.name})", c.cycles, figures.cycles)
            for c in slowest
        ],
        flash=_flash(question, names, figures.flash),
        less=[question.with_less(memory) for memory in _FIELDS],
        others=[question.with_other_kernel(c, names[c.variant.layer]) for c in slowest],
        streaming=streaming_decision(model)[1],
        passes=_decisions(model.decisions),
    )


class _Question:
    """Selection of the build, and of the same layers under one more restriction.

    Args:
        beside: bytes of each memory that no kernel changes, and that selection does not count.
    """

    def __init__(self, kernels: WholeTensors | StreamedModel, beside: Mapping[str, int]):
        self.model, self.beside, self.figures = kernels.model, beside, kernels.figures
        self.selection = selection = kernels.selection
        self.objective, self.limits = selection.objective, selection.limits
        self.selector = selection.selector
        # Copies of rows take cycles in addition to the kernels.
        self.moves = self.figures.cycles - selection.figures.cycles
        kernels_of = [candidate.kernel for candidate in selection.candidates]
        self.chosen = self.selector.choices_of(kernels_of, selection.own_copy)

    def without_limit(self, memory: str) -> Selection | None:
        """Return the best kernels without the limit of a memory."""
        return self.selector.best(self.objective, replace(self.limits, **{_FIELDS[memory]: math.inf}))

    def is_better(self, found: Selection) -> bool:
        """Return whether a selection is better than the build's, by the build's objective."""
        now, reference = self.selection.figures, self.selector.reference
        return self.objective.value(found.figures, reference) < self.objective.value(now, reference)

    def with_less(self, memory: str) -> RestrictedChoice:
        """Return the build of the same graph with one percent less of a memory, streamed or not."""
        beside = self.beside[memory]
        most = math.floor(LESS * (getattr(self.figures, _FIELDS[memory]) + beside))
        restriction = f"{memory} <= {most:,} B"
        try:
            found = self.model.with_options(replace(self.model.options, **{memory.lower(): most})).kernels
        except BudgetError as refusal:
            return RestrictedChoice(
                restriction, None, None, proved=False, impossible="; ".join(refusal.found)
            )
        streamed = isinstance(found, StreamedModel)
        return replace(
            self._alternative(restriction, found.figures, proved=found.selection.proved and not streamed),
            streamed=streamed,
        )

    def with_other_kernel(self, choice: VariantChoice, name: str) -> RestrictedChoice:
        """Return the best kernels with another kernel for one layer."""
        layer, kernel = choice.variant.layer, choice.variant.kernel.name
        others = self.selector.restricted(lambda v: v.layer != layer or v.kernel.name != kernel)
        found = others.best(self.objective, self.limits) if others is not None else None
        if found is None:
            limited = " keeps the limits" if others is not None else ""
            return RestrictedChoice(f"no other kernel for {name}{limited}", None, None, proved=True)
        taken = found.chosen[layer].variant.kernel.name
        figures = replace(found.figures, cycles=found.figures.cycles + self.moves)
        return replace(
            self._alternative(f"{name} without {kernel}", figures, proved=found.proved), kernel=taken
        )

    def _alternative(self, restriction: str, then: SelectionFigures, *, proved: bool) -> RestrictedChoice:
        now = self.figures
        before, after = self._value(now), self._value(then)
        growth = (after - before) / before if before else 0.0
        change = SelectionFigures(then.cycles - now.cycles, then.flash - now.flash, then.arena - now.arena)
        return RestrictedChoice(restriction, change, growth, proved)

    def _value(self, figures: SelectionFigures) -> float:
        """Return the first sum of the objective, or the cycles if only they count."""
        return self.objective.value(figures, self.selector.reference)[0]


_FIELDS = {"RAM": "arena", "flash": "flash"}


def _names(
    rankings: Sequence[LayerCandidates], selection: ChosenKernels, order: Iterable[int]
) -> dict[int, str]:
    """Return the names of all layers in the generated C, by their indices."""
    namer = Namer()
    return {
        index: claim_name(namer, rankings[index].layer, selection.candidates[index].kernel) for index in order
    }


def _limits(question: _Question, figures: SelectionFigures, forced: bool) -> list[LimitUse]:
    """Return the limits of a build.

    Args:
        forced: whether layers are streamed because of a limit.
    """
    found: list[LimitUse] = []
    for memory, field in _FIELDS.items():
        limit, beside = getattr(question.limits, field), question.beside[memory]
        if math.isfinite(limit):
            free = question.without_limit(memory)
            binding = forced or (free is not None and question.is_better(free))
            found.append(LimitUse(memory, int(limit) + beside, getattr(figures, field) + beside, binding))
    return found


def _peak(question: _Question, names: dict[int, str], planned: int, bound: int) -> PeakCalls:
    chosen, plans = question.chosen, question.selection.plans
    largest = max((choice.variant.need for choice in chosen), default=0)
    fullest = [choice.variant.layer for choice in chosen if choice.variant.need == largest]
    needs, together = largest, False
    if bound > largest and isinstance(plans, RunBounds):
        kernels, calls = [c.variant.kernel for c in chosen], [c.variant.call for c in chosen]
        runs = plans.runs_above(kernels, calls, largest)
        sized = [
            (plans.run_bound(run, [kernels[i] for i in run], [calls[i] for i in run]), run) for run in runs
        ]
        if sized:
            needs, run = max(sized, key=lambda each: each[0])
            fullest, together = [*run], True
    others = [c.variant.need for c in chosen if c.variant.layer not in fullest]
    return PeakCalls(
        [names[layer] for layer in fullest], together, needs, max(others, default=0), planned, bound
    )


def _share(name: str, amount: float, total: float) -> Share:
    return Share(name, amount, amount / total if total else 0.0)


def _flash(question: _Question, names: dict[int, str], total: int) -> list[Share]:
    """Return the largest pieces of flash: constants by layer, and functions with their copies by kernel."""
    pieces: Counter[str] = Counter()
    seen: set[object] = set()
    for choice in question.chosen:
        variant = choice.variant
        for key, size in variant.constants.items():
            if key not in seen:
                pieces[f"constants of {names[variant.layer]}"] += size
                seen.add(key)
        own = choice.own_copy or variant.function not in seen
        size = variant.code.alone if choice.own_copy else variant.code.shared
        if own:
            pieces[f"code of {variant.kernel.name}"] += size
        if not choice.own_copy:
            seen.add(variant.function)
    return [_share(name, size, total) for name, size in pieces.most_common(LARGEST)]


def _decisions(decisions: Sequence[Decision]) -> PassSummary:
    sections = default_pipeline().sections
    own = {step.name for name in FUSING for step in sections[name].passes}
    made = [decision for decision in decisions if decision.pass_name in own]
    fired = Counter(decision.pass_name for decision in decisions if decision.fired)
    fused = [(name, count) for name, count in fired.most_common() if name in own]
    others = [(name, count) for name, count in fired.most_common() if name not in own]
    declined = Counter(
        f"{d.pass_name} of {d.where.partition(' ')[0]}: {_NAME.sub('%...', d.reason)}"
        for d in made
        if not d.fired
    )
    return PassSummary(fused, others, declined.most_common())
