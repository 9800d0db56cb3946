"""Explanations of budget errors: the limit that decides, and options that would work, verified by builds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from microfold.errors import BudgetError, MicrofoldError, Remedy
from microfold.options import IO, Options
from microfold.plan.overlap import align
from microfold.program import Program

# Compiles with other options; raises MicrofoldError if they cannot be met.
Build = Callable[[Options], Program]
# Returns the least RAM, in bytes, that streaming with another `io` needs; None if no layers can be streamed.
LeastByRows = Callable[[str], int | None]
# Tiles of columns are tried if the RAM is at least this fraction of the need of full-width streaming.
TILES = 0.5
# Factors by which candidate sizes are multiplied, because the least RAM may need more flash than is allowed.
MORE = (1, 9 / 8, 5 / 4, 2)


def combined(whole: BudgetError, rows: BudgetError) -> BudgetError:
    """Return why neither whole tensors nor streaming fit, with the need of the smaller one."""
    if whole.rule != rows.rule:
        found = [*whole.found, f"by rows, {rows.rule}", *rows.found]
        return BudgetError(whole.rule, found, rows.remedies, rows.otherwise)
    name = "ram" if whole.least("ram") is not None else "flash"
    leaner = min(rows, whole, key=lambda each: each.least(name) or 0)
    return BudgetError(whole.rule, [*whole.found, *rows.found], leaner.remedies, leaner.otherwise)


def explained(
    refusal: BudgetError, options: Options, build: Build, least_streamed_ram: LeastByRows
) -> BudgetError:
    """Return the error with suggestions: other limits if there are two, or inputs outside of the arena.

    Args:
        refusal: error for these options.
        build: compiler, which is called a few times.
    """
    tried = _Tried(options, build)
    if options.ram is None:
        return refusal
    if options.flash is None:
        return _with_leaner_io(refusal, options.ram, tried, least_streamed_ram)
    any_flash, any_ram = tried(flash=None), tried(ram=None)
    if isinstance(any_ram, Program) and isinstance(any_flash, BudgetError):
        found = [*any_flash.found, f"the flash limit alone can be met, with {_ram(any_ram)} bytes of RAM"]
        least = any_flash.least("ram") or options.ram
        remedies = tried.first({"ram": size} for size in _rams(least, any_ram))
        return BudgetError(any_flash.rule, found, remedies, any_flash.otherwise)
    if isinstance(any_ram, Program):
        flash = f"constants and code {options.flash} of flash"
        rule = f"arena and state must fit {options.ram} bytes of RAM, {flash}"
        remedies = tried.flash(_flashes(refusal, any_flash))
        remedies += tried.first({"ram": size} for size in _rams(options.ram, any_ram))
        return BudgetError(
            rule, ["each limit can be met alone, but no kernels were found that meet both"], remedies
        )
    if not isinstance(any_ram, BudgetError):
        return refusal
    if isinstance(any_flash, Program):
        found = [
            *any_ram.found,
            f"the RAM limit alone can be met, with {any_flash.flash} bytes of constants and code",
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
    """Programs with some options changed, or the reasons why they cannot be built."""

    def __init__(self, options: Options, build: Build):
        self.options = options
        self._build = build

    def __call__(self, **changed: int | str | None) -> Program | MicrofoldError:
        try:
            return self._build(replace(self.options, **changed))
        except MicrofoldError as refusal:
            return refusal

    def first(self, remedies: Iterable[Remedy]) -> list[Remedy]:
        """Return the first remedy that works; empty if none does."""
        return next(([each] for each in remedies if isinstance(self(**each), Program)), [])

    def flash(self, sizes: Iterable[int], ram: int | None = None) -> list[Remedy]:
        """Return the first flash size that works, with the present or another RAM; empty if none does.

        Sizes that errors suggest are tried also.
        """
        other: dict[str, int] = {"ram": ram} if ram is not None else {}
        left = [*dict.fromkeys(sizes)]
        for size in left:
            found = self(**other, flash=size)
            if isinstance(found, Program):
                return [{**other, "flash": size}]
            left += [more for more in _flashes(found) if more > max(left)]
        return []


def _with_leaner_io(
    refusal: BudgetError, ram: int, tried: _Tried, least_streamed_ram: LeastByRows
) -> BudgetError:
    """Return the error with another `io` as a remedy, if one fits the RAM."""
    for io in IO[IO.index(tried.options.io) + 1 :]:
        least = least_streamed_ram(io)
        fits = least is not None and least <= ram
        if not fits and io == "caller" and (least is None or TILES * least <= ram):
            fits = isinstance(tried(io=io), Program)
        if fits:
            remedies = [*refusal.remedies, {"io": io}]
            return BudgetError(refusal.rule, refusal.found, remedies, refusal.otherwise)
    return refusal


def _flashes(*sources: Program | MicrofoldError) -> list[int]:
    """Return the bytes of flash to try: needs of programs with a reserve, or suggestions of errors."""
    found: list[int] = []
    for source in sources:
        if isinstance(source, Program):
            found += [align(int(source.flash * times)) for times in MORE]
        elif isinstance(source, BudgetError) and (least := source.least("flash")) is not None:
            found.append(least)
    return found


def _rams(least: int, program: Program) -> list[int]:
    """Return the bytes of RAM to try, from the least, which may need more flash, to a program's RAM."""
    more = [align(int(least * times)) for times in MORE]
    return [*(size for size in more if size < _ram(program)), _ram(program)]


def _ram(program: Program) -> int:
    return program.arena.size + program.state_size
