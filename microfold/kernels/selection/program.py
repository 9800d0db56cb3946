"""Integer program for the choice of a variant for each layer.

A column represents one variant of one layer. A variant whose function other layers could call has two
columns: one shares the function, the other has its own copy, which compilers specialise. Functions, helpers
and constants are pieces that count once, even if several layers use them. Each piece has a column, which is 1
if a chosen variant uses it. The arena is a monotone step function: it has a column for each size that a call
may require, which is 1 if some call requires that size. Time, flash and arena are sums of columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from microfold.kernels.selection.objective import SelectionFigures
from microfold.kernels.selection.solver import IntegerProgram, Terms
from microfold.kernels.selection.variant import ArenaRequest, Variant


class Prices(Struct, frozen=True):
    """Prices of one cycle, and of one byte of flash and of arena.

    Attributes:
        ranks: price of a variant's position among the variants of its layer.
    """

    cycles: float = 0.0
    flash: float = 0.0
    arena: float = 0.0
    ranks: int = 0

    def between(self, low: int, high: int) -> int:
        """Return the difference in price of two arenas, rounded so that such differences add up."""
        return round(high * self.arena) - round(low * self.arena)


# Makes the solution unique for every solver: of equally good choices, the first variants are preferred.
RANKS = Prices(ranks=1)


class VariantChoice(Struct, frozen=True, eq=False):
    """A variant of a layer; `own_copy`: whether no other layer calls its function."""

    variant: Variant
    own_copy: bool

    @property
    def cycles(self) -> float:
        return self.variant.single_caller_cycles if self.own_copy else self.variant.cycles


class ArenaWindow(Struct, frozen=True):
    """Consecutive calls that together need a larger arena than each of them alone.

    Attributes:
        requests: requests by layer; variants with requests that are no smaller need no less.
        size: bytes of the smallest arena for all these calls.
    """

    requests: Mapping[int, ArenaRequest]
    size: int

    def covers(self, variant: Variant) -> bool:
        """Return whether a variant requests at least as much as the window's request of its layer."""
        known = self.requests.get(variant.layer)
        return known is not None and variant.request.demands_at_least(known)

    def implies(self, other: ArenaWindow) -> bool:
        """Return whether this window requires at least the other one's size whenever the other one holds."""
        return self.size >= other.size and all(
            layer in other.requests and other.requests[layer].demands_at_least(request)
            for layer, request in self.requests.items()
        )

    def holds_for(self, chosen: Sequence[VariantChoice]) -> bool:
        """Return whether choices for all layers require the window's size."""
        return all(self.covers(chosen[layer].variant) for layer in self.requests)


class ChoiceProgram:
    """Integer program of one model.

    Attributes:
        choices: choices by column number.
        least_arena: bytes that the calls of every choice need.

    Args:
        layers: variants of each layer, at least one for each.
    """

    def __init__(self, layers: Sequence[Sequence[Variant]]):
        self.program = IntegerProgram()
        self.choices: dict[int, VariantChoice] = {}
        self.least_arena = max((min(v.need for v in variants) for variants in layers), default=0)
        self._layers = layers
        self._users = _Users(layers)
        self._columns: list[list[int]] = []
        self._flash: dict[int, int] = {}
        self._steps: dict[int, tuple[int, int]] = {}
        for variants in layers:
            self._columns.append([self._add(choice) for choice in self._undominated(variants)])
            self.program.exactly(1, dict.fromkeys(self._columns[-1], 1))
        self._add_pieces()
        self._without_arena = self.program
        self.know(())

    def know(self, windows: Sequence[ArenaWindow]) -> None:
        """Rebuild the constraints of the arena from the needs of single calls and from windows."""
        self.program = self._without_arena.copy()
        self._steps.clear()
        steps = self._add_staircase(windows)
        for window in windows:
            if window.size in steps:
                self._add_window(window, steps[window.size])

    def chosen(self, taken: Sequence[bool]) -> list[VariantChoice]:
        """Return the choice of each layer in a solution."""
        return [next(self.choices[c] for c in columns if taken[c]) for columns in self._columns]

    def sum_of(self, prices: Prices) -> Terms:
        """Return the cost of each column, rounded; the arena counts above `least_arena`."""
        found: dict[int, int] = {}
        if prices.cycles:
            found |= {c: round(choice.cycles * prices.cycles) for c, choice in self.choices.items()}
        if prices.flash:
            for column, size in self._flash.items():
                found[column] = found.get(column, 0) + round(size * prices.flash)
        if prices.arena:
            for column, (low, high) in self._steps.items():
                found[column] = prices.between(low, high)
        if prices.ranks:
            found |= self._ranks
        return found

    @property
    def _ranks(self) -> Terms:
        """Number for each choice; hardly any two choices for all layers have the same sum."""
        return {
            column: place * 997 + (layer * 7919 + place * 104729) % 991
            for layer, columns in enumerate(self._columns)
            for place, column in enumerate(columns)
        }

    def _add(self, choice: VariantChoice) -> int:
        variant = choice.variant
        how = "_own" if choice.own_copy and self._users.of_function(variant) > 1 else ""
        column = self.program.column(f"layer{variant.layer}_{variant.kernel.name}{how}")
        self.choices[column] = choice
        self._flash[column] = self._own_bytes(choice)
        return column

    def _undominated(self, variants: Sequence[Variant]) -> list[VariantChoice]:
        """Return the choices that no other choice of the layer with the same function dominates."""
        found: list[VariantChoice] = []
        by_function: dict[Hashable, list[_Comparable]] = {}
        offered = [self._comparable(choice) for choice in self._choices_of(variants)]
        for one in sorted(offered, key=lambda each: (each.choice.cycles, each.own_bytes)):
            function = None if one.choice.own_copy else one.choice.variant.function
            better = by_function.setdefault(function, [])
            if not any(_replaces(one, other) for other in better):
                better.append(one)
                found.append(one.choice)
        return found

    def _comparable(self, choice: VariantChoice) -> _Comparable:
        return _Comparable(choice, self._own_bytes(choice), dict(self._pieces(choice)))

    def _choices_of(self, variants: Sequence[Variant]) -> Iterator[VariantChoice]:
        for variant in variants:
            alone = self._users.of_function(variant) == 1
            if not alone:
                yield VariantChoice(variant, own_copy=False)
            if alone or variant.function.library is None:
                yield VariantChoice(variant, own_copy=True)

    def _pieces(self, choice: VariantChoice) -> Iterator[tuple[Hashable, int]]:
        """Yield the pieces that count once and that other layers may also use, with their bytes."""
        variant, users = choice.variant, self._users
        yield from ((key, size) for key, size in _shareable(variant) if users[key] > 1)
        if not choice.own_copy:
            yield ("function", variant.function), variant.code.shared

    def _own_bytes(self, choice: VariantChoice) -> int:
        """Return the bytes of flash that no other layer can share."""
        variant, users = choice.variant, self._users
        own = sum(size for key, size in _shareable(variant) if users[key] == 1)
        return own + (variant.code.alone if choice.own_copy else variant.description)

    def _add_pieces(self) -> None:
        """Add a column for each group of pieces that the same choices use."""
        sizes: dict[Hashable, int] = {}
        used: dict[Hashable, list[int]] = {}
        for column, choice in self.choices.items():
            for key, size in self._pieces(choice):
                sizes[key] = max(size, sizes.get(key, 0))
                used.setdefault(key, []).append(column)
        together: dict[tuple[int, ...], list[Hashable]] = {}
        for key, columns in used.items():
            together.setdefault(tuple(columns), []).append(key)
        for columns, keys in together.items():
            piece = self.program.column(f"piece{len(self.program.names)}")
            self._flash[piece] = sum(sizes[key] for key in keys)
            by_layer: dict[int, list[int]] = {}
            for column in columns:
                by_layer.setdefault(self.choices[column].variant.layer, []).append(column)
            for own in by_layer.values():
                self.program.at_most(0, {**dict.fromkeys(own, 1), piece: -1})
            functions = [key[1] for key in keys if isinstance(key, tuple) and key[0] == "function"]
            if any(function.library is None for function in functions):
                # A function with a single calling layer must be that layer's own copy.
                self.program.at_most(0, {piece: 2, **dict.fromkeys(columns, -1)})

    def _add_staircase(self, windows: Sequence[ArenaWindow]) -> Mapping[int, int]:
        """Add the steps of the arena; return their columns by the sizes to which they lead."""
        sizes = {variant.need for variants in self._layers for variant in variants} | {
            w.size for w in windows
        }
        levels = [self.least_arena, *sorted(size for size in sizes if size > self.least_arena)]
        steps: dict[int, int] = {}
        for low, high in pairwise(levels):
            steps[high] = self.program.column(f"arena{high}")
            self._steps[steps[high]] = low, high
            if low in steps:
                self.program.at_most(0, {steps[high]: 1, steps[low]: -1})
        for columns in self._columns:
            above: list[int] = []
            for level in sorted({self._need(column) for column in columns} & steps.keys(), reverse=True):
                above += [column for column in columns if self._need(column) == level]
                self.program.at_most(0, {**dict.fromkeys(above, 1), steps[level]: -1})
        return steps

    def _need(self, column: int) -> int:
        return self.choices[column].variant.need

    def _add_window(self, window: ArenaWindow, step: int) -> None:
        """Require the window's size if each of its calls requests at least as much as in the window."""
        columns = (column for layer in window.requests for column in self._columns[layer])
        alike = {column: 1 for column in columns if window.covers(self.choices[column].variant)}
        self.program.at_most(len(window.requests) - 1, {**alike, step: -1})


class _Comparable(Struct, frozen=True, eq=False):
    """A choice with what decides whether another one dominates it.

    Attributes:
        own_bytes: bytes of flash that no other layer can share.
        pieces: bytes of the pieces that other layers may also use.
    """

    choice: VariantChoice
    own_bytes: int
    pieces: Mapping[Hashable, int]


def _replaces(one: _Comparable, other: _Comparable) -> bool:
    """Return whether another choice, which is no slower, needs no more flash and no more of the arena.

    The other choice may have to pay for all of its own pieces.
    """
    paid = sum(size for key, size in other.pieces.items() if key not in one.pieces)
    if other.own_bytes + paid > one.own_bytes:
        return False
    return _is_at_least_as_demanding(one.choice.variant, other.choice.variant)


def _is_at_least_as_demanding(one: Variant, other: Variant) -> bool:
    """Return whether every plan for variant `one` of a layer is also valid for variant `other`."""
    return one.need >= other.need and one.request.demands_at_least(other.request)


def figures_of(chosen: Sequence[VariantChoice], arena: int) -> SelectionFigures:
    """Return the figures of a choice; functions, helpers and equal constants count once."""
    once = {key: size for choice in chosen for key, size in _shareable(choice.variant)}
    once |= {("function", c.variant.function): c.variant.code.shared for c in chosen if not c.own_copy}
    own = sum(c.variant.code.alone if c.own_copy else c.variant.description for c in chosen)
    return SelectionFigures(sum(choice.cycles for choice in chosen), own + sum(once.values()), arena)


def _shareable(variant: Variant) -> Iterator[tuple[Hashable, int]]:
    """Yield the constants and helpers of a variant with their bytes."""
    yield from ((("constants", key), size) for key, size in variant.constants.items())
    yield from ((("helper", name), size) for name, size in variant.code.helpers.items())


class _Users:
    """Number of layers that could use each piece."""

    def __init__(self, layers: Sequence[Sequence[Variant]]):
        self._layers: dict[Hashable, set[int]] = {}
        for variants in layers:
            for variant in variants:
                for key in (("function", variant.function), *(key for key, _ in _shareable(variant))):
                    self._layers.setdefault(key, set()).add(variant.layer)

    def __getitem__(self, key: Hashable) -> int:
        return len(self._layers[key])

    def of_function(self, variant: Variant) -> int:
        """Return the number of layers that could call the function of a variant."""
        return self["function", variant.function]
