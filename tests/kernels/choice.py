"""Layers as kernels see them, and selection that tests take the choice away from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.kernels.band import lowered
from microfold.kernels.conv2d import dsp, dsp_tile
from microfold.kernels.kernel import Kernel, ResourceTradeoff
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection import candidates
from microfold.kernels.selection.candidates import NO_GUIDANCE, Candidate, Guidance

# Kernels that read weights of fewer bits than they compute with.
PACKED = frozenset({ResourceTradeoff.FOUR_BITS, ResourceTradeoff.HALF_FLOATS})


def layer_of(graph: Graph, core: str = "cortex-m4", node: Node | None = None) -> LayerContext:
    """A node, by default the first one, compiled for a core."""
    return LayerContext(node or graph.nodes[0], graph.constants, target.load(core))


def candidates_of(graph: Graph, core: str = "cortex-m4") -> list[Candidate]:
    """The kernels considered for the only node of a graph."""
    (node,) = graph.nodes
    return candidates.candidates(layer_of(graph, core, node))


def without_biasless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No layer's sums have a form without biases."""

    def declined(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr("microfold.kernels.conv2d.dsp.plan_biasless", declined)
    monkeypatch.setattr("microfold.kernels.depthwise_conv2d.dsp.plan_biasless_plane", declined)


def without_quads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No convolution computes four channels at a time."""
    for module in (dsp, dsp_tile):
        monkeypatch.setattr(module, "block_plans", dsp.channel_plans)


def with_quads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions of several pixels compute four channels at a time where they can."""
    plans = dsp.block_plans
    for module in (dsp, dsp_tile):
        monkeypatch.setattr(module, "block_plans", lambda layer: plans(layer)[:1])


# Considers a kernel, without what tests ask for.
_CONSIDER = candidates.evaluate_candidate


def avoid(monkeypatch: pytest.MonkeyPatch, unwanted: Callable[[Kernel], bool]) -> None:
    """Selection takes these kernels only where no other one can do, whatever was avoided before."""
    _restrict(monkeypatch, lambda kernel, _: not unwanted(kernel), candidates.evaluate_candidate)


def prefer(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Selection takes these kernels wherever they fit, rather than those preferred before."""
    _restrict(monkeypatch, lambda kernel, _: kernel.name in names, _CONSIDER)


def want_variants(monkeypatch: pytest.MonkeyPatch, wanted: Mapping[str, Mapping[str, Any]]) -> None:
    """Leave layers the variants whose functions have these choices, by the names of their results."""

    def suits(kernel: Kernel, layer: LayerContext) -> bool:
        spec = dict(lowered(kernel, layer).function.spec)
        choices = wanted.get(layer.whole.outputs[0].name, {})
        return all(name in spec and spec[name] == choice for name, choice in choices.items())

    _restrict(monkeypatch, suits, candidates.evaluate_candidate)


def _restrict(
    monkeypatch: pytest.MonkeyPatch,
    wanted: Callable[[Kernel, LayerContext], bool],
    consider: Callable[[Kernel, LayerContext, Guidance], Candidate],
) -> None:
    """Leave only wanted variants to layers that have some; others are considered as before."""
    before = candidates.evaluate_candidate

    def left(kernel: Kernel, layer: LayerContext, guidance: Guidance) -> Candidate:
        return layer.remembered((left, kernel, guidance), lambda: find(kernel, layer, guidance))

    def find(kernel: Kernel, layer: LayerContext, guidance: Guidance) -> Candidate:
        found = consider(kernel, layer, guidance)
        known = found.offers if found.cost is not None else ()
        offers = [offer for offer in known if wanted(offer.kernel, layer)]
        if not offers:
            return Candidate(kernel, None, "another kernel is wanted")
        return replace(found, kernel=offers[0].kernel, cost=offers[0].cost, offers=offers)

    def some_left(layer: LayerContext, guidance: Guidance) -> bool:
        others = candidates.kernels_for(layer.node)
        return any(left(other, layer, guidance).cost is not None for other in others)

    def restricted(kernel: Kernel, layer: LayerContext, guidance: Guidance = NO_GUIDANCE) -> Candidate:
        if layer.remembered((some_left, guidance), lambda: some_left(layer, guidance)):
            return left(kernel, layer, guidance)
        return before(kernel, layer, guidance)

    monkeypatch.setattr(candidates, "evaluate_candidate", restricted)
