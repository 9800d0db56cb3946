"""Estimated time and scratch of a layer, for passes, which do not know kernels."""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.kernels.band import lowered
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.candidates import Implementation, candidates
from microfold.kernels.selection.objective import Objective, SelectionFigures
from microfold.kernels.selection.variant import constant_arrays
from microfold.support.memo import Remembered
from microfold.target import Target


class NodeCosts:
    """Cost estimates by the kernels of a target, for `PassContext.node_cost`.

    They are the estimates of the kernel that is best by the objective for the node alone, without arena and
    code.

    Args:
        compiled_for_size: see `LayerContext`.
    """

    def __init__(self, target: Target, objective: Objective, *, compiled_for_size: bool = False):
        self.target, self.objective, self.small = target, objective, compiled_for_size
        self._graph: Graph | None = None
        self._remembered = Remembered()

    def __call__(self, node: Node, graph: Graph) -> float | None:
        """Return the cycles of the best kernel; None if there is no kernel.

        Args:
            graph: graph with the constants that the node reads; it need not contain the node.
        """
        best = self._best(node, graph)
        return None if best is None else best.cost

    def scratch(self, node: Node, graph: Graph) -> float | None:
        """Return the bytes of scratch of the best kernel; None if there is no kernel."""
        best = self._best(node, graph)
        return None if best is None else lowered(best.kernel, best.layer).scratch

    def _best(self, node: Node, graph: Graph) -> Implementation | None:
        if self._graph is not graph:
            self._graph, self._remembered = graph, Remembered()
        return self._remembered(node, lambda: self._find_best(node, graph))

    def _find_best(self, node: Node, graph: Graph) -> Implementation | None:
        layer = LayerContext(node, graph.constants, self.target, compiled_for_size=self.small)
        offers = [offer for candidate in candidates(layer) for offer in candidate.offers]
        if len(offers) < 2:
            return offers[0] if offers else None
        figures = [_figures(offer) for offer in offers]
        least = SelectionFigures(min(f.cycles for f in figures), min(f.flash for f in figures), 0)
        found = [(self.objective.value(f, least), offer) for f, offer in zip(figures, offers, strict=True)]
        return min(found, key=lambda each: each[0])[1]


def _figures(offer: Implementation) -> SelectionFigures:
    """Return the figures of a layer without its code, which other layers may share."""
    call = lowered(offer.kernel, offer.layer)
    arrays = constant_arrays(offer.kernel, offer.layer, call)
    return SelectionFigures(offer.cost, sum(array.nbytes for _, array in arrays), 0)
