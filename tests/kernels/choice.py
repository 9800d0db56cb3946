"""Layers as kernels see them, and selection that tests take the choice away from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from microfold import target
from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.kernels.conv2d import dsp, dsp_tile
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection import cheapest, decide
from microfold.kernels.selection.cheapest import Candidate
from microfold.kernels.selection.model import Model
from microfold.kernels.selection.policy import Policy


def layer_of(graph: Graph, core: str = "cortex-m4", node: Node | None = None) -> LayerContext:
    """A node, by default the first one, compiled for a core."""
    return LayerContext(node or graph.nodes[0], graph.constants, target.load(core))


def candidates_of(graph: Graph, core: str = "cortex-m4", level: str = "balanced") -> list[Candidate]:
    """The kernels considered for the only node of a graph."""
    (node,) = graph.nodes
    return cheapest.candidates(layer_of(graph, core, node), Policy(level, Model(graph)))


def as_chosen(_: object, chosen: Sequence[Candidate], *__: object) -> list[Candidate]:
    """In the place of what changes choices afterwards."""
    return [*chosen]


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


def reprice(monkeypatch: pytest.MonkeyPatch, price: Callable[[Kernel, float], float]) -> None:
    """Selection goes by other costs of the kernels that fit; what was repriced before is so again."""
    consider = cheapest.consider

    def repriced(kernel: Kernel, layer: LayerContext, policy: Policy) -> Candidate:
        found = consider(kernel, layer, policy)
        return found if found.cost is None else replace(found, cost=price(found.kernel, found.cost))

    monkeypatch.setattr(cheapest, "consider", repriced)
    # Where the arena is largest, it would go by the real ones.
    monkeypatch.setattr(decide, "relieve_peak", as_chosen)
    monkeypatch.setattr(decide, "balance_shares", as_chosen)


def avoid(monkeypatch: pytest.MonkeyPatch, unwanted: Callable[[Kernel], bool]) -> None:
    """Selection takes these kernels only where no other one can do."""
    reprice(monkeypatch, lambda kernel, cost: 1e30 if unwanted(kernel) else cost)


def prefer(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Selection takes these kernels wherever they fit, rather than those preferred before."""
    reprice(monkeypatch, lambda kernel, cost: 0.0 if kernel.name in names else cost + 1)
