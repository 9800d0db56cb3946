"""Several models of one firmware within limits of RAM and flash that hold for all of them together.

The RAM is the one arena, as large as the largest model's, and what each keeps from run to run: so each may
have what the others' states leave. The flash is constants and code; constants that several models read
count once. Each model has the best kernels for that limit first; while all together are too large, the model
is built smaller for which a byte costs least time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from microfold.codegen.group import arena_room, arena_size
from microfold.codegen.shared_constants import constant_bytes
from microfold.errors import BudgetError
from microfold.options import Options
from microfold.program import Program
from microfold.support.frozen import frozen
from microfold.support.memo import Remembered

# Compiles a model with some options; the flag: whether refusals say what else would do. Raises BudgetError.
Build = Callable[[Options, bool], Program]
# Steps from a model's fastest kernels to the smallest ones.
STEPS = 4
# How often what a refusal names is tried: with two budgets, it may be refused for the other one.
ATTEMPTS = 3


def build_within(builds: Sequence[tuple[str, Build]], options: Options) -> list[Program]:
    """Programs of all models, each with limits of its own with which all together keep theirs.

    Args:
        builds: with the models' names.
        options: the limits are those of all models; the arena is apart.

    Raises:
        BudgetError: nothing that was found keeps the limits; names the model that decides, and what would do.
    """
    models = [_Model(name, build) for name, build in builds]
    try:
        return _within(models, options)
    except BudgetError as refusal:
        raise _explained(models, options, refusal) from None


class _Model:
    """A model, built once with the same options."""

    def __init__(self, name: str, build: Build):
        self.name = name
        self._build = build
        self._remembered = Remembered()

    def __call__(self, options: Options) -> Program | BudgetError:
        return self._remembered(options, lambda: self._find(options))

    def _find(self, options: Options) -> Program | BudgetError:
        try:
            return self._build(options, options.flash is None)
        except BudgetError as refusal:
            return refusal

    def least(self, options: Options, memory: str) -> Program:
        """With as much ``ram`` or ``flash`` as refusals name, if these options are refused.

        Raises:
            BudgetError: they name nothing that would do.
        """
        found = refusal = self(options)
        for _ in range(ATTEMPTS):
            if isinstance(found, Program):
                return found
            size = found.least(memory)
            if size is None:
                break
            found = self(replace(options, **{memory: size}))
        assert isinstance(refusal, BudgetError)
        raise BudgetError(refusal.rule, [f"{self.name} decides", *refusal.found], [], refusal.otherwise)


def _within(models: Sequence[_Model], options: Options) -> list[Program]:
    """See `build_within`; refusals name the least of one memory."""
    if options.ram is None:
        own = [options for _ in models]
    else:
        programs = _within_ram(models, options, options.ram)
        room = arena_room(options.ram - _states(programs), options.align)
        own = [replace(options, ram=room + program.state_size) for program in programs]
        if options.flash is None:
            return programs
    if options.flash is None:
        return [model.least(options, "ram") for model in models]
    return _Flash(models, own, options.flash).programs()


def _within_ram(models: Sequence[_Model], options: Options, limit: int) -> list[Program]:
    """Programs with any flash. Each is tried with what it may have if the others keep nothing.

    Raises:
        BudgetError: the states and the largest arena do not fit.
    """

    def build(model: _Model, ram: int) -> tuple[Program, BudgetError | None]:
        """The program, or the leanest one with the reason why it is refused."""
        allowed = replace(options, ram=max(ram, 0), flash=None)
        found = model(allowed)
        return (found, None) if isinstance(found, Program) else (model.least(allowed, "ram"), found)

    found = [build(model, limit) for model in models]
    while True:
        programs = [program for program, _ in found]
        room = arena_room(limit - _states(programs), options.align)
        over = [i for i, (program, why) in enumerate(found) if why is None and program.arena.size > room]
        if not over:
            break
        for index in over:
            found[index] = build(models[index], room + programs[index].state_size)
    refused = [(program, why, model) for (program, why), model in zip(found, models, strict=True) if why]
    if not refused:
        return programs
    _, why, model = max(refused, key=lambda each: each[0].arena.size)
    arena, states = arena_size(programs), _states(programs)
    together = f"all models together have an arena of {arena} bytes, and states of {states}"
    raise BudgetError(
        f"the arena that the models share and their states must fit {limit} bytes of RAM",
        [f"{model.name} decides: {why.found[0]}", *why.found[1:], f"with its least, {together}"],
        [{"ram": arena + states}, *(remedy for remedy in why.remedies if "io" in remedy)],
        why.otherwise,
    )


def flash_of(programs: Sequence[Program]) -> int:
    """Return the estimated bytes of constants and code of all; constants of several models count once."""
    constants = sum(program.weight_bytes for program in programs)
    return sum(program.flash for program in programs) - constants + constant_bytes(programs)


def _states(programs: Sequence[Program]) -> int:
    """Bytes that all of them keep from run to run."""
    return sum(program.state_size for program in programs)


def _explained(models: Sequence[_Model], options: Options, refusal: BudgetError) -> BudgetError:
    """The same with remedies that do for all models: more RAM may need more flash as well."""
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


@frozen(eq=False)
class _Flash:
    """Models whose constants together have a limit.

    Attributes:
        own: the options of each, with its part of the RAM.
    """

    models: Sequence[_Model]
    own: Sequence[Options]
    limit: int

    def programs(self) -> list[Program]:
        """Programs within the limit.

        Raises:
            BudgetError: the smallest ones are not.
        """
        fastest = [self._build(index, self.limit) for index in range(len(self.models))]
        programs = [program for program in fastest if isinstance(program, Program)]
        if len(programs) == len(fastest) and flash_of(programs) <= self.limit:
            return programs
        least = [
            model.least(replace(options, flash=0), "flash")
            for model, options in zip(self.models, self.own, strict=True)
        ]
        needed = flash_of(least)
        if needed > self.limit:
            raise self._refusal(least, needed)
        first = [
            f if isinstance(f, Program) else smallest for f, smallest in zip(fastest, least, strict=True)
        ]
        return self._spent(self._smaller(first, least))

    def _build(self, index: int, flash: int) -> Program | BudgetError:
        return self.models[index](replace(self.own[index], flash=flash))

    def _refusal(self, least: Sequence[Program], needed: int) -> BudgetError:
        limited = ", of those whose arena fits the RAM" if self.own[0].ram is not None else ""
        each = ", ".join(f"{m.name} {p.flash}" for m, p in zip(self.models, least, strict=True))
        shared = sum(program.flash for program in least) - needed
        found = [f"the smallest kernels{limited} take {needed} by estimate: {each}"]
        found += [f"{shared} bytes of these are of several models, and count once"] if shared else []
        rule = f"constants and code of all models must fit {self.limit} bytes of flash"
        return BudgetError(rule, found, [{"flash": needed}])

    def _smaller(self, programs: Sequence[Program], least: Sequence[Program]) -> list[Program]:
        """Programs within the limit, by steps each of which costs the least time per byte.

        Where models share constants, only a step of all of them may save any.
        """
        now = [*programs]
        steps = [
            (program.flash - smallest.flash) // STEPS
            for program, smallest in zip(programs, least, strict=True)
        ]
        while (excess := flash_of(now) - self.limit) > 0:
            next_ = [
                self._step(index, now[index], least[index], max(min(excess, step), 1))
                for index, step in enumerate(steps)
            ]
            changes = [[*now[:index], next_[index], *now[index + 1 :]] for index in range(len(now))]
            size, time = flash_of(now), _time(now)
            paying = [c for c in (*changes, next_) if flash_of(c) < size]
            if not paying:
                return [*least]
            now = min(paying, key=lambda c: (_time(c) - time) / (size - flash_of(c)))
        return now

    def _step(self, index: int, program: Program, least: Program, size: int) -> Program:
        """The same model with so many bytes less; its least where that is nearer."""
        if program.flash - size <= least.flash:
            return least
        found = self._build(index, program.flash - size)
        return found if isinstance(found, Program) else least

    def _spent(self, programs: Sequence[Program]) -> list[Program]:
        """The same with bytes that steps left over."""
        now = [*programs]
        for index, program in enumerate(programs):
            more = self._build(index, program.flash + self.limit - flash_of(now))
            if isinstance(more, Program) and _time([more]) < _time([program]):
                changed = [*now[:index], more, *now[index + 1 :]]
                now = changed if flash_of(changed) <= self.limit else now
        return now


def _time(programs: Sequence[Program]) -> int:
    """Estimates of one run of each: cycles, or instructions; of what is not known, nothing."""
    return sum(program.estimated_cycles or program.estimated_instructions or 0 for program in programs)
