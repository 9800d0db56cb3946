"""Pattern rewriting: replaces the matches of patterns in a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from microfold.ir.graph import Graph
from microfold.ir.match import Match
from microfold.ir.node import Node, Value, rewire
from microfold.ir.pattern import DataflowPattern, match
from microfold.ir.rewrite import RewriteSite, forward_rewrite
from microfold.ir.types import Array


class SiteFlow:
    """Dataflow around a node that is being rewritten, see `microfold.ir.match.Dataflow`.

    Attributes:
        root: the node itself, with operands of the new graph.
    """

    def __init__(self, site: RewriteSite[Any]):
        node = site.node
        inputs = tuple(site.value(index) for index in range(len(node.inputs)))
        self.root = Node(node.op, inputs, node.outputs, site.epilogue)
        self._builder = site.builder
        self._uses: Counter[Value] = site.uses

    def producer(self, value: Value) -> Node | None:
        return self.root if value in self.root.outputs else self._builder.producer(value)

    def array(self, value: Value) -> Array | None:
        return self._builder.constants.get(value)

    def readers(self, value: Value) -> int:
        return self._uses[value]

    def consumers(self, value: Value) -> Sequence[Node]:
        """Return the old readers of the values that `value` replaces, rewired to read `value` itself."""
        olds = [value]
        for old in olds:
            olds += self._builder.stands_for.get(old, ())
        replaced = {old: value for old in olds if old is not value}
        nodes = dict.fromkeys(node for old in olds for node in self._builder.consumers.get(old, ()))
        return tuple(rewire(node, replaced) for node in nodes)

    def is_input(self, value: Value) -> bool:
        return value in self._builder.inputs


PatternRule = tuple[DataflowPattern, Callable[[RewriteSite[None], Match], Value | Sequence[Value] | None]]


def rewrite_patterns(
    graph: Graph,
    rules: Sequence[PatternRule],
    *,
    declined: Callable[[Node, str], object] | None = None,
) -> Graph:
    """Replace matches in one sweep of `forward_rewrite`, and remove nodes that only replaced nodes read.

    Args:
        rules: patterns, each with a function that returns the replacement of the root's result, or None to
            keep it. The first rule of a node with a replacement wins. Values of a match belong to the new
            graph, except for the root's own result.
        declined: called with the node and the reason if the root has the pattern's operator, but the rest of
            the pattern does not match; e.g. `PassContext.declined`.

    Returns:
        The new graph; `graph` itself if no rule returned a replacement.
    """

    def rewrite(site: RewriteSite[None]) -> Value | Sequence[Value] | None:
        if len(site.node.outputs) != 1:
            return None
        flow = SiteFlow(site)
        for pattern, replace_match in rules:
            found = match(pattern, site.node.output, flow)
            if isinstance(found, Match):
                answer = replace_match(site, found)
                if answer is not None:
                    return answer
            elif found.matched and declined is not None:
                declined(site.node, str(found))
        return None

    return forward_rewrite(graph, rewrite)
