"""Best kernels for several models of one firmware together.

The RAM has one shared arena, as large as the largest model's, and the state that each model keeps between
runs. Therefore each model may use the memory that the other models' states leave. Streaming is decided for
each model alone. Then one integer program chooses the kernels of all layers of all models; see
`joint_choice`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from microfold.codegen.group import arena_room, arena_size
from microfold.errors import BudgetError
from microfold.kernels.selection.objective import Limits, Objective, objective_of
from microfold.kernels.selection.selector import Selection
from microfold.lowering.joint_choice import GroupMember, joint_selector, of_each
from microfold.lowering.prepared import PreparedProgram
from microfold.options import Options
from microfold.program import Program
from microfold.support.memo import Remembered

# Maximum number of sizes that are tried for one error. With two limits, a build may fail because of the other
# one.
ATTEMPTS = 3


# Chooses the kernels of a model with some options; the flag: whether errors suggest other options. Raises
# BudgetError.
Build = Callable[[Options, bool], PreparedProgram]


class Group(Struct, frozen=True, eq=False):
    """Programs of all models.

    Attributes:
        flash: estimated bytes of constants and code; shared constants and functions count once.
    """

    programs: Sequence[Program]
    flash: int


def build_within(builds: Sequence[tuple[str, Build]], options: Options) -> Group:
    """Return the programs of all models with the best kernels for all of them together.

    Args:
        builds: names of the models, and their builds.
        options: options with the limits of all models together; the arena is separate.

    Raises:
        BudgetError: no choice that was found keeps the limits. The error names the limiting model, and
            suggests limits.
    """
    models = [_Model(name, build) for name, build in builds]
    try:
        prepared, flash = _within(models, options)
        return Group([each.program for each in prepared], flash)
    except BudgetError as refusal:
        raise _explained(models, options, refusal) from None


class _Model:
    """A model that is built once for each set of options."""

    def __init__(self, name: str, build: Build):
        self.name = name
        self._build = build
        self._remembered = Remembered()

    def __call__(self, options: Options) -> PreparedProgram | BudgetError:
        return self._remembered(options, lambda: self._find(options))

    def _find(self, options: Options) -> PreparedProgram | BudgetError:
        try:
            return self._build(options, options.flash is None)
        except BudgetError as refusal:
            return refusal

    def least(self, options: Options, memory: str) -> PreparedProgram:
        """Return the model, with as much ``ram`` or ``flash`` as errors suggest if options are rejected.

        Raises:
            BudgetError: the errors suggest no size that works.
        """
        found = refusal = self(options)
        for _ in range(ATTEMPTS):
            if not isinstance(found, BudgetError):
                return found
            size = found.least(memory)
            if size is None:
                break
            found = self(replace(options, **{memory: size}))
        assert isinstance(refusal, BudgetError)
        raise BudgetError(
            refusal.rule, [f"{self.name} needs the most", *refusal.found], [], refusal.otherwise
        )


def _within(models: Sequence[_Model], options: Options) -> tuple[list[PreparedProgram], int]:
    """Return the models and the flash of a `Group`; errors suggest the least of one memory."""
    any_flash = replace(options, flash=None)
    if options.ram is None:
        own = [any_flash for _ in models]
        found = [model.least(any_flash, "ram") for model in models]
        room = math.inf
    else:
        found = _within_ram(models, any_flash, options.ram)
        programs = [prepared.program for prepared in found]
        room = arena_room(options.ram - _states(programs), options.align)
        own = [replace(any_flash, ram=room + program.state_size) for program in programs]
    limits = Limits(math.inf if options.flash is None else options.flash, room)
    chosen = _Joint(found).best(objective_of(options), limits)
    if chosen is None:
        # Other graphs, or another choice of streaming, may need less flash.
        smallest = [
            model.least(replace(each, flash=0), "flash") for model, each in zip(models, own, strict=True)
        ]
        joint = _Joint(smallest)
        chosen = joint.best(objective_of(options), limits)
        if chosen is None:
            raise joint.refusal([model.name for model in models], limits)
    return chosen


def _within_ram(models: Sequence[_Model], options: Options, limit: int) -> list[PreparedProgram]:
    """Return the models without a limit of flash, each with the RAM that it has if the others keep nothing.

    Raises:
        BudgetError: the states and the largest arena do not fit.
    """

    def build(model: _Model, ram: int) -> tuple[PreparedProgram, BudgetError | None]:
        """Return the model, or its variant of least memory with the reason why the options are rejected."""
        allowed = replace(options, ram=max(ram, 0))
        found = model(allowed)
        return (model.least(allowed, "ram"), found) if isinstance(found, BudgetError) else (found, None)

    found = [build(model, limit) for model in models]
    while True:
        programs = [prepared.program for prepared, _ in found]
        room = arena_room(limit - _states(programs), options.align)
        over = [i for i, (_, why) in enumerate(found) if why is None and programs[i].arena.size > room]
        if not over:
            break
        for index in over:
            found[index] = build(models[index], room + programs[index].state_size)
    refused = [(each.program, why, model) for (each, why), model in zip(found, models, strict=True) if why]
    if not refused:
        return [prepared for prepared, _ in found]
    _, why, model = max(refused, key=lambda each: each[0].arena.size)
    arena, states = arena_size(programs), _states(programs)
    together = f"all models together need an arena of {arena} bytes, and states of {states}"
    raise BudgetError(
        f"the shared arena and all states must fit {limit} bytes of RAM",
        [f"{model.name} needs the most: {why.found[0]}", *why.found[1:], f"at least, {together}"],
        [{"ram": arena + states}, *(remedy for remedy in why.remedies if "io" in remedy)],
        why.otherwise,
    )


def _states(programs: Sequence[Program]) -> int:
    """Return the bytes that all models keep between runs."""
    return sum(program.state_size for program in programs)


def _explained(models: Sequence[_Model], options: Options, refusal: BudgetError) -> BudgetError:
    """Return the error with remedies that work for all models: more RAM may also need more flash."""
    remedies = [*_tried(models, options, refusal)]
    return BudgetError(refusal.rule, refusal.found, remedies, refusal.otherwise)


def _tried(
    models: Sequence[_Model], options: Options, refusal: BudgetError
) -> Iterator[dict[str, int | str]]:
    for remedy in refusal.remedies:
        try:
            _within(models, replace(options, **remedy))
        except BudgetError as other:
            flash = other.least("flash")
            if "ram" in remedy and flash is not None:
                yield {**remedy, "flash": flash}
        else:
            yield {**remedy}


class _Joint:
    """Joint choice of the kernels of all models.

    Args:
        models: models with the kernels that are best for each alone.
    """

    def __init__(self, models: Sequence[PreparedProgram]):
        self._models = models
        kernels = [each.kernels for each in models]
        self._parts = [GroupMember(each.selection, each.figures.arena) for each in kernels]
        self._selector = joint_selector(
            self._parts, sum(each.selection.selector.fixed_ram for each in kernels)
        )

    def best(self, objective: Objective, limits: Limits) -> tuple[list[PreparedProgram], int] | None:
        """Return the models with the best kernels that keep the limits, and their flash; None if none do."""
        found = self._selector.best(objective, limits)
        return None if found is None else (self._with(found), found.figures.flash)

    def _with(self, found: Selection) -> list[PreparedProgram]:
        choices = of_each(self._parts, found.chosen)
        functions = [{choice.variant.function for choice in own} for own in choices]
        return [
            model.with_choices(own, {f for other in functions if other is not called for f in other})
            for model, own, called in zip(self._models, choices, functions, strict=True)
        ]

    def refusal(self, names: Sequence[str], limits: Limits) -> BudgetError:
        """Return the error with the least flash that would be enough."""
        least = self._selector.best(Objective(flash=1.0), replace(limits, flash=math.inf))
        assert least is not None  # each model fits the arena
        limited = " with an arena that fits the RAM" if math.isfinite(limits.arena) else ""
        needed = least.figures.flash
        flash = [prepared.kernels.figures.flash for prepared in self._with(least)]
        each = ", ".join(f"{name} {own}" for name, own in zip(names, flash, strict=True))
        found = [f"the smallest kernels{limited} need {needed} by estimate: {each}"]
        shared = sum(flash) - needed
        found += [f"several models share {shared} of these bytes, which count once"] if shared else []
        rule = f"constants and code of all models must fit {limits.flash:.0f} bytes of flash"
        return BudgetError(rule, found, [{"flash": needed}])
