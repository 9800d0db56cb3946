"""Regions: nodes that follow each other in a graph, and are computed row by row."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.views import Views, needs_no_code
from microfold.plan.stream.inputs import InputRows, taken_rows
from microfold.plan.stream.row_node import RowNode
from microfold.support.frozen import frozen


@frozen(eq=False)
class Region:
    """Nodes that are computed row by row.

    Attributes:
        nodes: ones of the graph that follow each other.
        start: how many nodes come before them.
        inputs: those of the graph whose rows are handed in, or other shapes of these, or columns.
        sources: what `nodes` read and is there whole before they begin: other inputs, or results of nodes
            before.
        fronts: results of `nodes` that the nodes behind read, or the caller: held whole.
        readers: of each streamed value: the node and the index of the operand.
        outlives: sources that are still read when the region is computed.
        taken: of `inputs`, which rows these are.
        rings: values of which rows that stay lie in rings.
        carried: those of which they lie at home, and come to a stage to be read.
    """

    graph: Graph
    nodes: tuple[RowNode, ...]
    start: int
    inputs: tuple[Value, ...]
    sources: tuple[Value, ...]
    fronts: tuple[Value, ...]
    readers: Mapping[Value, Sequence[tuple[RowNode, int]]]
    producers: Mapping[Value, RowNode]
    outlives: frozenset[Value]
    taken: Mapping[Value, InputRows]
    rings: tuple[Value, ...] = ()
    carried: tuple[Value, ...] = ()

    @property
    def key(self) -> Hashable:
        """Equal for regions of the same rows, kept in the same way."""
        return self.graph, self.nodes, self.start, self.rings, self.carried

    @property
    def end(self) -> int:
        """How many nodes of the graph come before those behind the region."""
        return self.start + len(self.nodes)

    def with_rings(self, values: Collection[Value], carried: Collection[Value] = ()) -> Region:
        """The same with rings for those of the values that may be rings, and rows of some others carried."""
        rings = [value for value in self.may_be_rings if value in values]
        plain: dict[RowNode, RowNode] = {}
        for each in self.nodes:
            by_address = any(v in rings for v in each.node.inputs[:1]) and each.reads_several(0)
            plain[each] = each.addressed(by_address)
        readers = {v: [(plain[each], index) for each, index in found] for v, found in self.readers.items()}
        return replace(
            self,
            nodes=tuple(plain.values()),
            readers=readers,
            producers={each.output: each for each in plain.values()},
            rings=tuple(rings),
            carried=tuple(v for v in self.may_be_carried if v in carried and v not in rings),
        )

    @cached_property
    def may_be_carried(self) -> tuple[Value, ...]:
        """What is never whole, and keeps rows from call to call."""
        values = (*self.inputs, *(each.output for each in self.nodes if not each.accumulates))
        return tuple(
            value
            for value in values
            if value not in self.held
            and any(node.reads_several(index) for node, index in self.readers.get(value, ()))
        )

    @cached_property
    def may_be_rings(self) -> tuple[Value, ...]:
        """What of this may be rings: readers of several rows read it first."""
        return tuple(
            value
            for value in self.may_be_carried
            if all(
                not node.reads_several(index) or (index == 0 and node.node.operands.count(value) == 1)
                for node, index in self.readers[value]
            )
        )

    @property
    def held(self) -> tuple[Value, ...]:
        """What has room for all its rows."""
        return (*self.sources, *self.fronts)

    def above(self, value: Value) -> int:
        """Rows of padding that are written above a value."""
        return max((n.readings[i].above for n, i in self.readers.get(value, ())), default=0)

    def below(self, value: Value) -> int:
        """Rows of padding that are written below a value."""
        return max((n.readings[i].below for n, i in self.readers.get(value, ())), default=0)

    def fill(self, value: Value) -> float:
        """What the padding of a value holds."""
        fills = (n.readings[i].fill for n, i in self.readers.get(value, ()))
        return next((fill for fill in fills if fill is not None), 0.0)


def region_of(
    graph: Graph, nodes: Sequence[RowNode], start: int = 0, pushed: Collection[Value] | None = None
) -> Region | str:
    """Nodes of a graph that follow each other as a region, or the reason why they are none.

    Args:
        nodes: those of ``graph.nodes[start:start + len(nodes)]``.
        pushed: inputs that are handed in row by row; all others are there whole. Default: all inputs.
    """
    inside = graph.nodes[start : start + len(nodes)]
    if tuple(each.node for each in nodes) != tuple(inside):
        raise ValueError("a region is nodes of a graph that follow each other")
    pushed = graph.inputs if pushed is None else pushed
    readers: dict[Value, list[tuple[RowNode, int]]] = {}
    for each in nodes:
        for index in each.readings:
            value = each.node.inputs[index]
            assert value is not None
            readers.setdefault(value, []).append((each, index))
    views = Views(graph)
    producers = {each.output: each for each in nodes}
    found = {v: taken_rows(graph, v, views, pushed) for v in readers if v not in producers}
    taken = {value: rows for value, rows in found.items() if rows is not None}
    inputs = tuple(taken)
    sources = tuple(value for value in readers if value not in producers and value not in inputs)
    reason = _why_none(graph, nodes, readers, views, sources)
    if reason is not None:
        return reason
    rest = graph.nodes[start + len(nodes) :]
    behind = {views[v].root for node in rest if not needs_no_code(node) for v in node.operands}
    behind |= {views[v].root for v in (*graph.outputs, *(state.next for state in graph.state))}
    first = (node for node in graph.nodes[:start] if not needs_no_code(node))
    before = {views[v].root for node in first for v in node.operands}
    if len(inputs) > 1:
        return f"rows are those of one image; %{inputs[0].brief} and %{inputs[1].brief} would be handed in"
    for value in inputs:
        if not taken[value].columns and views[value].root in behind | before:
            return (
                f"the input %{value.brief} is also read outside of the region: it would have to be there "
                "whole"
            )
    fronts = tuple(each.output for each in nodes if each.output in behind)
    outlives = frozenset(value for value in sources if views[value].root in behind)
    return Region(
        graph,
        tuple(nodes),
        start,
        inputs,
        sources,
        fronts,
        readers,
        producers,
        outlives,
        taken,
    )


def _why_none(
    graph: Graph,
    nodes: Sequence[RowNode],
    readers: Mapping[Value, Sequence[tuple[RowNode, int]]],
    views: Views,
    sources: Sequence[Value],
) -> str | None:
    """Why values cannot be read or computed by rows."""
    state = {state.value for state in graph.state}
    for value, found in readers.items():
        fills = {node.readings[index].fill for node, index in found} - {None}
        if len(fills) > 1:
            return f"%{value.brief} is padded in {len(fills)} different ways"
        if views[value].root in state:
            return f"%{value.brief} is kept from run to run: it is there whole"
    for value in sources:
        padded = any(node.readings[index].fill is not None for node, index in readers[value])
        if padded and not _is_all(value, views):
            whole = views[value].root
            return f"%{value.brief} is a part of %{whole.brief}, and its rows have no room around them"
    for each in nodes:
        whole = views[each.output].root
        if whole is not each.output:
            return f"%{each.output.brief} is computed into %{whole.brief}, which is there whole"
    return None


def _is_all(value: Value, views: Views) -> bool:
    """Whether it is all of the storage that it is in."""
    return value.type.nbytes == views[value].root.type.nbytes
