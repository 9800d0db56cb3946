"""Pareto-optimal builds of a model: the fastest kernels for many limits of RAM and flash.

The front is exact at each limit: for the given order of calls, no selection of kernels for whole tensors is
faster. It covers compilation at -Os and at -O2. If rewrites differ, it covers the graph with the fewest
cycles and the graph with the smallest arena. Streaming is excluded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.text import to_text
from microfold.kernels.selection.candidates import LayerCandidates
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.kernels.selection.objective import Limits, Objective
from microfold.lowering.choose import Chooser, ChosenKernels
from microfold.lowering.optimised import ImportedModel, OptimisedModel, optimised
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.reporting.schema import Tradeoff
from microfold.reporting.what_if import pareto_front, time_of
from microfold.target import Target

# Number of RAM limits between the arena of the fastest kernels and the smallest one, and of flash limits for
# each of them.
RAM_STEPS, FLASH_STEPS = 5, 3
# Time counts a thousand times as much as flash. Flash decides between choices of nearly equal speed.
_TIME, _FLASH, _RAM = Objective(cycles=1000.0, flash=1.0), Objective(flash=1.0), Objective(arena=1.0)


Progress = Callable[[int, int], None]


def _no_progress(_done: int, _total: int) -> None:
    """Ignore the progress."""


def tradeoffs(
    graph: Graph,
    target: Target,
    options: Options,
    context: PassContext | None = None,
    costs: MeasuredCosts | None = None,
    progress: Progress = _no_progress,
) -> list[Tradeoff]:
    """Return the Pareto-optimal builds, the least RAM first.

    Args:
        options: options without a level, limits and prices.
        costs: measured costs of kernels, if any.
        progress: callback that receives the number of finished RAM limits, and of all of them.

    Raises:
        MicrofoldError: the model cannot be compiled.
    """
    found: dict[tuple[int, int, int], Tradeoff] = {}
    seen: set[tuple[str, str]] = set()
    variants = [(level, prices) for level in ("balanced", "size") for prices in ("cycles=1", "ram=1")]
    limits = RAM_STEPS + 1
    for number, (optimize, prices) in enumerate(variants):
        progress(number * limits, len(variants) * limits)
        chosen = replace(options, optimize=optimize, objective=prices, rows="never", io=_whole(options.io))
        model = optimised(ImportedModel.of(graph, target, chosen, context, costs=costs))
        key = optimize, to_text(model.graph, elide=True)
        if key in seen:
            continue
        seen.add(key)
        for step, some in enumerate(_front_of(model), 1):
            for each in some:
                found.setdefault((each.ram, each.flash, time_of(each) or 0), each)
            progress(number * limits + step, len(variants) * limits)
    return sorted(pareto_front([*found.values()]), key=lambda each: (each.ram, each.flash))


def _whole(io: str) -> str:
    if io == "rows":
        raise InputError("tradeoffs require whole tensors: remove io, or use `microfold build --io rows`")
    return io


def _front_of(model: OptimisedModel) -> Iterator[list[Tradeoff]]:
    """Yield the fastest choices for one graph: for each limit of RAM, those for several limits of flash."""
    chooser = model.selected.chooser
    fastest, leanest = chooser.best(_TIME, unique=False), chooser.best(_RAM, unique=False)
    assert fastest is not None and leanest is not None  # without limits, there is always a choice
    for arena in _steps(fastest.figures.arena, leanest.figures.arena, RAM_STEPS):
        smallest = chooser.best(_FLASH, Limits(arena=arena), unique=False)
        most = chooser.best(_TIME, Limits(arena=arena), unique=False)
        if smallest is None or most is None:
            continue  # the search did not find a plan within this limit again
        choices = [most]
        for flash in [*_steps(most.figures.flash, smallest.figures.flash, FLASH_STEPS)][1:]:
            found = chooser.best(_TIME, Limits(flash, arena), unique=False)
            if found is not None:
                choices.append(found)
        yield [_tradeoff(model, chooser, each) for each in choices]


def _steps(most: int, least: int, count: int) -> Iterator[int]:
    """Yield sizes from the largest to the smallest, in a geometric sequence."""
    for step in range(count + 1):
        yield round(most * (least / max(most, 1)) ** (step / count)) if step < count else least
        if most == least:
            return


def _tradeoff(model: OptimisedModel, chooser: Chooser, found: ChosenKernels) -> Tradeoff:
    figures, state = found.figures, model.selected.scope.state_size
    arena = figures.arena
    if model.selected.scope.inner:  # selection does not know the arena of layers that run other layers
        arena = model.selected.memory(
            [c.kernel for c in found.candidates], model.selected.calls(found.candidates)
        ).size
    timed = model.target.cycle_model is not None
    return Tradeoff(
        "size" if model.options.optimize == "size" else "balanced",
        arena + state,
        figures.flash,
        arena + state,
        figures.flash,
        _instructions(chooser.layers, found),
        round(figures.cycles) if timed else None,
    )


def _instructions(layers: Sequence[LayerCandidates], found: ChosenKernels) -> int:
    """Return the estimated instructions of a run."""
    total = 0.0
    for ranking, candidate, own in zip(layers, found.candidates, found.own_copy, strict=True):
        kernel = candidate.kernel
        total += (kernel.single_caller_cost if own else kernel.cost)(ranking.layer) * ranking.runs
    return round(total)
