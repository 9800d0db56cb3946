"""The kernel of every layer: what the user asks for, for the model as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.errors import InputError
from microfold.kernels.selection.cheapest import Candidate, Ranking
from microfold.kernels.selection.flash_budget import select_within
from microfold.kernels.selection.least_flash import Planner, select_least_flash
from microfold.kernels.selection.model import Model
from microfold.options import Options


def decide(layers: Sequence[Ranking], model: Model, options: Options, plan: Planner) -> list[Candidate]:
    """The choice for each layer.

    Args:
        layers: each with at least one kernel that fits.
        plan: the arena of a choice.

    Raises:
        InputError: no kernels fit the flash that the options allow.
    """
    if options.flash is not None:
        return _within(options.flash, layers, model)
    if options.optimize == "size":
        return select_least_flash(layers, plan)
    return [ranking.candidates[0] for ranking in layers]


def _within(flash: int, layers: Sequence[Ranking], model: Model) -> list[Candidate]:
    """The fastest kernels whose constants fit; external code generators keep their regions."""
    found = select_within(flash, [ranking.layer for ranking in layers if not ranking.fixed], model)
    if isinstance(found, str):
        raise InputError(f"constants must fit {flash} bytes of flash; {found}: allow as many")
    free = iter(found)
    return [ranking.candidates[0] if ranking.fixed else next(free) for ranking in layers]
