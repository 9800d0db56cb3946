"""Layers of a model with the names and numbers by which the user pins kernels to them."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.codegen.names import Namer
from microfold.errors import MicrofoldError
from microfold.kernels.selection.candidates import LayerCandidates, unsupported_reason
from microfold.kernels.selection.pins import PinnableLayer
from microfold.lowering.schedule import claim_name
from microfold.lowering.selection_result import SelectionResult


def pinnable_layers(selected: SelectionResult) -> list[PinnableLayer]:
    """Return the layers with the names and the order that they have in a build without pins."""
    namer = Namer()
    return [_pinnable(namer, selected.rankings[index]) for index in _order(selected)]


def _order(selected: SelectionResult) -> Sequence[int]:
    """Return the order of the calls, as indices of rankings; the graph's order if there is no plan."""
    try:
        if not selected.scope.inner:
            return selected.schedule.order
    except MicrofoldError:
        pass  # no kernels, or no plan within the limits; pins may change that
    return range(len(selected.rankings))


def _pinnable(namer: Namer, ranking: LayerCandidates) -> PinnableLayer:
    found, layer = ranking.candidates, ranking.layer
    name = claim_name(namer, layer, found[0].kernel if found else None)
    kernels = {} if ranking.fixed else {c.kernel.name: unsupported_reason(c.kernel, layer) for c in found}
    return PinnableLayer(name, layer.node, kernels)
