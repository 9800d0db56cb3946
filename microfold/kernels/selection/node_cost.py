"""What a layer would take, in time and scratch: for passes, which see no kernels."""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.node import Node
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.cheapest import Candidate, candidates
from microfold.kernels.selection.model import Model
from microfold.kernels.selection.policy import Policy
from microfold.target import Target


class NodeCosts:
    """Estimates by the kernels that a target has, as `PassContext.node_cost` wants them.

    Args:
        level: ``size``, ``balanced`` or ``speed``.
    """

    def __init__(self, target: Target, level: str):
        self.target, self.level = target, level
        self._policy: Policy | None = None

    def __call__(self, node: Node, graph: Graph) -> float | None:
        """Cycles of the kernel that would be chosen; None: there is none.

        Args:
            graph: whose constants the node reads; it need not be a node of it.
        """
        _, best = self._best(node, graph)
        return None if best is None else best.cost

    def scratch(self, node: Node, graph: Graph) -> float | None:
        """Bytes of scratch of that kernel; None: there is none."""
        layer, best = self._best(node, graph)
        return None if best is None or best.cost is None else best.kernel.lower(layer).scratch

    def _best(self, node: Node, graph: Graph) -> tuple[LayerContext, Candidate | None]:
        if self._policy is None or self._policy.model.graph is not graph:
            self._policy = Policy(self.level, Model(graph))
        policy, small = self._policy, self.level == "size"
        # One layer for a node: what is found for its time is there for its scratch.
        layer = policy.model.remembered(
            (NodeCosts, node),
            lambda: LayerContext(node, graph.constants, self.target, compiled_for_size=small),
        )
        return layer, next(iter(candidates(layer, policy)), None)
