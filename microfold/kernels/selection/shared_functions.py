"""Kernels for the least flash, memory aside: layers share functions where that costs little time.

A function is paid for once, whichever layers call it; constants and time are paid for by each layer. Which
functions to have is the facility location problem (see https://en.wikipedia.org/wiki/Optimal_facility_location);
a local search is good enough.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from microfold.kernels.band import lowered
from microfold.kernels.call import CFunction, KernelCall
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Candidate
from microfold.support.frozen import frozen

# Bytes of flash that are worth as much as all of the model's time with its fastest kernels. The fastest code
# of a small network has about as many: `size` gives up a percent of the time for each percent of the code.
BYTES_FOR_TIME = 6144
# Bytes of a field of a layer's description, on average.
FIELD_BYTES = 2

# The place of an option that there is not.
_NONE = 1 << 30


@frozen(eq=False)
class Option:
    """One way to compute a layer.

    Attributes:
        cost: of a run of the model, `Case.cost`.
        flash: bytes of its constants and description.
    """

    candidate: Candidate
    call: KernelCall
    cost: float
    flash: int

    @property
    def kernel(self) -> Kernel:
        return self.candidate.kernel

    @property
    def function(self) -> CFunction:
        return self.call.function


def layer_options(layer: LayerContext, candidates: Iterable[Candidate], runs: int) -> list[Option]:
    """Those of the candidates that fit, fastest first.

    Args:
        runs: how often the layer is computed.
    """
    found: list[Option] = []
    for candidate in candidates:
        if candidate.cost is None:
            continue
        call = lowered(candidate.kernel, layer)
        flash = sum(constant.array.nbytes for constant in call.constants.values())
        flash += FIELD_BYTES * len(call.parameters)
        found.append(Option(candidate, call, candidate.cost * runs, flash))
    return sorted(found, key=lambda option: (option.cost, option.flash))


def select_smallest(layers: Sequence[Sequence[Option]]) -> list[Option]:
    """The choice for each layer: of kernels, then of those and their other forms.

    Args:
        layers: the options of each; at least one.
    """
    fastest = sum(min(option.cost for option in options) for options in layers)
    price = BYTES_FOR_TIME / max(fastest, 1.0)
    names = [{option.kernel.name for option in options} for options in layers]
    chosen = _solve(
        [
            [o for o in options if o.kernel.form_of not in own]
            for options, own in zip(layers, names, strict=True)
        ],
        price,
    )
    forms = [
        [o for o in options if o is choice or o.kernel.form_of == choice.kernel.name]
        for options, choice in zip(layers, chosen, strict=True)
    ]
    return _solve(forms, price)


def _solve(layers: Sequence[Sequence[Option]], price: float) -> list[Option]:
    chosen: dict[int, Option] = {}
    for group in _connected(layers):
        chosen |= zip(group, _Market([layers[index] for index in group], price).solve(), strict=True)
    return [chosen[index] for index in range(len(layers))]


def _connected(layers: Sequence[Sequence[Option]]) -> list[list[int]]:
    """Layers in groups: those of different groups cannot share functions."""
    groups: list[tuple[set[CFunction], list[int]]] = []
    for index, options in enumerate(layers):
        functions, members = {option.function for option in options}, [index]
        apart: list[tuple[set[CFunction], list[int]]] = []
        for group in groups:
            if functions.isdisjoint(group[0]):
                apart.append(group)
            else:
                functions, members = functions | group[0], group[1] + members
        groups = [*apart, (functions, members)]
    return [members for _, members in groups]


class _Market:
    """The functions that some layers may share, and what each choice of functions costs, in bytes."""

    def __init__(self, layers: Sequence[Sequence[Option]], price: float):
        self.price = price
        # With a function there, only the layer's own share counts.
        self.ranked = [sorted(options, key=lambda o: (self._share(o), o.kernel.name)) for options in layers]
        self.code = {option.function: option.kernel.code for options in self.ranked for option in options}
        self._columns = {function: column for column, function in enumerate(self.code)}
        # Of each layer and function: the place of its first option among the layer's, and the share of that.
        self._places = np.full((len(layers), len(self.code)), _NONE)
        self._shares = np.zeros((len(layers), len(self.code)))
        for row, options in enumerate(self.ranked):
            for place, option in reversed([*enumerate(options)]):
                column = self._columns[option.function]
                self._places[row, column] = place
                self._shares[row, column] = self._share(option)
        self._code = np.array([*self.code.values()])

    def solve(self) -> list[Option]:
        """The best of the local optima that all functions, and each alone, lead to."""
        starts = [list(self.code), *([function] for function in self.code)]
        found = [self._improve(self._complete(start)) for start in starts]
        opened = min(found, key=self._total)
        return [next(o for o in options if o.function in opened) for options in self.ranked]

    def _share(self, option: Option) -> float:
        return option.flash + self.price * option.cost

    def _complete(self, functions: Iterable[CFunction]) -> frozenset[CFunction]:
        """With functions for the layers that have none."""
        opened = set(functions)
        for options in self.ranked:
            if all(option.function not in opened for option in options):
                opened.add(min(options, key=lambda o: self._share(o) + o.kernel.code).function)
        return frozenset(opened)

    def _improve(self, opened: frozenset[CFunction]) -> frozenset[CFunction]:
        """Opens or closes the function that saves most, as long as there is one."""
        while True:
            best = min((opened ^ {function} for function in self.code), key=self._total)
            if self._total(best) >= self._total(opened):
                return opened
            opened = best

    def _total(self, opened: Collection[CFunction]) -> float:
        columns = np.array([self._columns[function] for function in opened], int)
        if not columns.size:
            return math.inf
        places = self._places[:, columns]
        if (places.min(axis=1) == _NONE).any():
            return math.inf
        used = columns[places.argmin(axis=1)]
        # One after the other, so that equal choices cost the same however they were found.
        shares = np.add.accumulate(self._shares[np.arange(len(used)), used])[-1]
        return float(shares + self._code[np.unique(used)].sum())
