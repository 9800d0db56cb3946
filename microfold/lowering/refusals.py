"""What refusals of budgets say: which budget decides, and what does build, which is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from microfold.errors import BudgetError, MicrofoldError, Remedy
from microfold.options import IO, Options
from microfold.plan.overlap import align
from microfold.program import Program

# Compiles with other options; raises MicrofoldError where they are not met.
Build = Callable[[Options], Program]
# Bytes of RAM that layers by rows need at least, of what is found, with another io; None: none work by rows.
LeastByRows = Callable[[str], int | None]
# Tiles of columns are tried where the RAM has such a part of what rows of full width need.
TILES = 0.5
# Times the bytes that might do which are tried: the least RAM may need more flash than is allowed.
MORE = (1, 9 / 8, 5 / 4, 2)


def combined(whole: BudgetError, rows: BudgetError) -> BudgetError:
    """Why neither whole tensors nor rows fit, with what the leaner way needs."""
    if whole.rule != rows.rule:
        found = [*whole.found, f"by rows, {rows.rule}", *rows.found]
        return BudgetError(whole.rule, found, rows.remedies, rows.otherwise)
    name = "ram" if whole.least("ram") is not None else "flash"
    leaner = min(rows, whole, key=lambda each: each.least(name) or 0)
    return BudgetError(whole.rule, [*whole.found, *rows.found], leaner.remedies, leaner.otherwise)


def explained(
    refusal: BudgetError, options: Options, build: Build, least_by_rows: LeastByRows
) -> BudgetError:
    """The same with what would do otherwise: other budgets where there are two, or inputs outside the arena.

    Args:
        refusal: of these options.
        build: is called a few times.
    """
    tried = _Tried(options, build)
    if options.ram is None:
        return refusal
    if options.flash is None:
        return _with_leaner_io(refusal, options.ram, tried, least_by_rows)
    any_flash, any_ram = tried(flash=None), tried(ram=None)
    if isinstance(any_ram, Program) and isinstance(any_flash, BudgetError):
        found = [*any_flash.found, f"the flash alone would do, with {_ram(any_ram)} bytes of RAM"]
        least = any_flash.least("ram") or options.ram
        remedies = tried.first({"ram": size} for size in _rams(least, any_ram))
        return BudgetError(any_flash.rule, found, remedies, any_flash.otherwise)
    if isinstance(any_ram, Program):
        flash = f"constants and code {options.flash} of flash"
        rule = f"arena and state must fit {options.ram} bytes of RAM, {flash}"
        remedies = tried.flash(_flashes(refusal, any_flash))
        remedies += tried.first({"ram": size} for size in _rams(options.ram, any_ram))
        return BudgetError(rule, ["some kernels meet either alone; none were found that meet both"], remedies)
    if not isinstance(any_ram, BudgetError):
        return refusal
    if isinstance(any_flash, Program):
        found = [
            *any_ram.found,
            f"the RAM alone would do, with {any_flash.flash} bytes of constants and code",
        ]
        remedies = tried.flash(_flashes(any_ram, refusal, any_flash))
        return BudgetError(any_ram.rule, found, remedies)
    ram = any_flash.least("ram") if isinstance(any_flash, BudgetError) else None
    if not isinstance(any_flash, BudgetError) or ram is None:
        return refusal
    remedies = tried.flash(_flashes(any_ram, tried(ram=ram, flash=None)), ram)
    found = [*any_flash.found, any_ram.rule, *any_ram.found]
    return BudgetError(any_flash.rule, found, remedies, any_flash.otherwise)


class _Tried:
    """Programs with some options changed, or the reasons why there are none."""

    def __init__(self, options: Options, build: Build):
        self.options = options
        self._build = build

    def __call__(self, **changed: int | str | None) -> Program | MicrofoldError:
        try:
            return self._build(replace(self.options, **changed))
        except MicrofoldError as refusal:
            return refusal

    def first(self, remedies: Iterable[Remedy]) -> list[Remedy]:
        """The first remedy that does; empty: none does."""
        return next(([each] for each in remedies if isinstance(self(**each), Program)), [])

    def flash(self, sizes: Iterable[int], ram: int | None = None) -> list[Remedy]:
        """The first of these bytes of flash that do, with the RAM there is or other; empty: none do.

        What refusals name is tried, too.
        """
        other: dict[str, int] = {"ram": ram} if ram is not None else {}
        left = [*dict.fromkeys(sizes)]
        for size in left:
            found = self(**other, flash=size)
            if isinstance(found, Program):
                return [{**other, "flash": size}]
            left += [more for more in _flashes(found) if more > max(left)]
        return []


def _with_leaner_io(refusal: BudgetError, ram: int, tried: _Tried, least_by_rows: LeastByRows) -> BudgetError:
    """The same with another way to hand in inputs, if there is one that fits the RAM."""
    for io in IO[IO.index(tried.options.io) + 1 :]:
        least = least_by_rows(io)
        fits = least is not None and least <= ram
        if not fits and io == "caller" and (least is None or TILES * least <= ram):
            fits = isinstance(tried(io=io), Program)
        if fits:
            remedies = [*refusal.remedies, {"io": io}]
            return BudgetError(refusal.rule, refusal.found, remedies, refusal.otherwise)
    return refusal


def _flashes(*sources: Program | MicrofoldError) -> list[int]:
    """Return bytes of flash to try. Programs take so many, or refusals name them."""
    found: list[int] = []
    for source in sources:
        if isinstance(source, Program):
            found += [align(int(source.flash * times)) for times in MORE]
        elif isinstance(source, BudgetError) and (least := source.least("flash")) is not None:
            found.append(least)
    return found


def _rams(least: int, program: Program) -> list[int]:
    """Bytes of RAM that may do: from the least, which may need more flash, to what a program has."""
    more = [align(int(least * times)) for times in MORE]
    return [*(size for size in more if size < _ram(program)), _ram(program)]


def _ram(program: Program) -> int:
    return program.arena.size + program.state_size
