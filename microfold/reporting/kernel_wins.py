"""Gain of each chosen kernel: how much worse a build would be if the kernel did not exist.

The rule that a kernel must keep is in docs/developing.md.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from microfold.errors import InputError, UnsupportedModelError
from microfold.kernels.kernel import KERNELS
from microfold.kernels.loading import load_all_kernels
from microfold.kernels.selection.objective import Objective, SelectionFigures
from microfold.lowering.chosen_kernels import StreamedModel, WholeTensors
from microfold.lowering.optimised import ImportedModel, optimised
from microfold.target import load

# Least gain of a kernel that stays: of a network, and of a model with fewer layers, whose one operator may be
# nearly all of it.
LEAST_WIN, FEW_LAYERS, LEAST_WIN_OF_FEW = 0.02, 3, 0.1


class KernelWin(Struct, frozen=True):
    """Gain of one kernel in one build.

    Attributes:
        layers: number of layers that it computes.
        win: largest relative growth without it, of the objective and of the figures with the highest price.
            None if nothing can be built without it.
        cycles, flash, arena: relative growth of these figures; 0 if nothing can be built without it.
        others: kernels that are chosen instead.
    """

    kernel: str
    layers: int
    win: float | None
    cycles: float
    flash: float
    arena: float
    others: Sequence[str]


class KernelUse(Struct, frozen=True):
    """Use of one kernel in all builds of a suite.

    Attributes:
        builds: number of builds that choose it.
        needed: number of builds that are impossible without it.
        best: gain in the build where it is the largest part of the least one, if it is chosen.
        model, target, level: this build.
        kept: whether it keeps the rule.
    """

    kernel: str
    builds: int
    needed: int
    best: KernelWin | None
    model: str
    target: str
    level: str
    kept: bool


class _Build(Struct, frozen=True, eq=False):
    figures: SelectionFigures
    kernels: Sequence[str]


def kernel_wins(model: ImportedModel) -> list[KernelWin]:
    """Return the gain of each kernel that a build chooses, in the order of their names.

    Kernels are selected once more without the kernel, for the same graph. If it is the only one for a layer,
    the passes also run once more, because they form other layers if a kernel does not exist.

    Raises:
        UnsupportedModelError: some layers have no kernel.
        InputError: see `choose_kernels`.
    """
    build = optimised(model.quiet).kernels
    names = [candidate.kernel.name for candidate in build.selection.candidates]
    registered = {kernel.name for kernel in KERNELS}  # external code is not
    return [_win(model, build, names, name) for name in sorted({*names} & registered)]


def _win(
    model: ImportedModel, build: WholeTensors | StreamedModel, names: Sequence[str], name: str
) -> KernelWin:
    found = _selected_without(build, name) or _built_without(model, name)
    if found is None:
        return KernelWin(name, names.count(name), None, 0.0, 0.0, 0.0, ())
    objective, reference = build.selection.objective, build.selection.selector.reference
    now, then = build.figures, found.figures
    before, after = (objective.value(figures, reference)[0] for figures in (now, then))
    growth = {field: _growth(getattr(now, field), getattr(then, field)) for field in _prices(objective)}
    return KernelWin(
        name,
        names.count(name),
        max(_growth(before, after), *(growth[field] for field in _dearest(objective))),
        *growth.values(),
        others=sorted({*found.kernels} - {*names}) or sorted({*found.kernels} & {*names} - {name}),
    )


def _growth(before: float, after: float) -> float:
    return (after - before) / before if before else 0.0


def _prices(objective: Objective) -> Mapping[str, float]:
    return {"cycles": objective.cycles, "flash": objective.flash, "arena": objective.arena}


def _dearest(objective: Objective) -> list[str]:
    """Return the names of the figures with the highest price."""
    prices = _prices(objective)
    return [name for name, price in prices.items() if price == max(prices.values())]


def _selected_without(build: WholeTensors | StreamedModel, name: str) -> _Build | None:
    """Return the selection for the same graph without a kernel; None if a layer needs it."""
    selection = build.selection
    others = selection.selector.restricted(lambda variant: variant.kernel.name != name)
    found = others.best(selection.objective, selection.limits, unique=False) if others is not None else None
    if found is None:
        return None
    # Streamed layers also take cycles for copies of rows.
    cycles = found.figures.cycles + build.figures.cycles - selection.figures.cycles
    figures = SelectionFigures(cycles, found.figures.flash, found.figures.arena)
    return _Build(figures, [choice.variant.kernel.name for choice in found.chosen])


def _built_without(model: ImportedModel, name: str) -> _Build | None:
    """Return the build without a kernel; None if there is none."""
    with _without(name):
        try:
            found = optimised(model.quiet).kernels
        except (InputError, UnsupportedModelError):
            return None
        return _Build(found.figures, [candidate.kernel.name for candidate in found.selection.candidates])


@contextmanager
def _without(name: str) -> Generator[None]:
    """Remove a kernel from `KERNELS` for a while."""
    index = next(i for i, kernel in enumerate(KERNELS) if kernel.name == name)
    kernel = KERNELS.pop(index)
    try:
        yield
    finally:
        KERNELS.insert(index, kernel)


def kernel_uses(reports: Iterable[Mapping[str, Any]]) -> list[KernelUse]:
    """Return the use of each kernel that one of the targets can run, those below the rule first.

    Args:
        reports: for each build, its ``model``, ``target``, ``level`` and ``kernels``: the fields of its
            `KernelWin` objects.
    """
    reports = [report for report in reports if "error" not in report]
    load_all_kernels()
    features = [load(target).features for target in sorted({report["target"] for report in reports})]
    known = [kernel.name for kernel in KERNELS if any(kernel.features <= each for each in features)]
    chosen: dict[str, list[tuple[Mapping[str, Any], KernelWin, float]]] = {}
    for report in reports:
        wins = [KernelWin(**each) for each in report["kernels"]]
        least = LEAST_WIN if sum(win.layers for win in wins) >= FEW_LAYERS else LEAST_WIN_OF_FEW
        for win in wins:
            chosen.setdefault(win.kernel, []).append((report, win, least))
    found = [_use(name, chosen.get(name, [])) for name in known]
    return sorted(found, key=lambda use: (use.kept, use.needed > 0, use.best.win or 0 if use.best else 0.0))


def _use(name: str, chosen: Sequence[tuple[Mapping[str, Any], KernelWin, float]]) -> KernelUse:
    needed = sum(win.win is None for _, win, _ in chosen)
    optional = [each for each in chosen if each[1].win is not None]
    if not optional:
        return KernelUse(name, len(chosen), needed, None, "", "", "", kept=needed > 0)
    report, best, least = max(optional, key=lambda each: (each[1].win or 0.0) / each[2])
    return KernelUse(
        name,
        len(chosen),
        needed,
        best,
        report["model"],
        report["target"],
        report["level"],
        kept=needed > 0 or (best.win or 0.0) >= least,
    )
