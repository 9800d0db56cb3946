"""Regions: consecutive nodes of a graph that are computed row by row."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.views import Views, needs_no_code
from microfold.plan.stream.inputs import InputRows, taken_rows
from microfold.plan.stream.row_node import RowNode


class StreamRegion(Struct, frozen=True, eq=False, dict=True):
    """Nodes that are computed row by row.

    Attributes:
        nodes: consecutive nodes of the graph.
        start: number of nodes before them.
        inputs: graph inputs that are streamed, or reshapes or columns of them.
        sources: operands that are complete before the region begins: other inputs, or results of earlier
            nodes.
        fronts: results that later nodes or the caller read. They are resident.
        readers: for each streamed value, the nodes that read it and the index of the operand.
        outlives: sources that are still read after the region.
        taken: rows of each of `inputs`.
        rings: values whose older rows are in a ring buffer.
        carried: values whose older rows are in a staged line buffer.
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
        """Key that is equal for regions with the same rows in the same kinds of buffers."""
        return self.graph, self.nodes, self.start, self.rings, self.carried

    @property
    def end(self) -> int:
        """Index of the first node after the region."""
        return self.start + len(self.nodes)

    def with_rings(self, values: Collection[Value], carried: Collection[Value] = ()) -> StreamRegion:
        """Return the region with ring buffers for some values, and staged line buffers for some others.

        Only values that may have them get them.
        """
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
        """Values that are not resident, and keep rows between calls."""
        values = (*self.inputs, *(each.output for each in self.nodes if not each.accumulates))
        return tuple(
            value
            for value in values
            if value not in self.held
            and any(node.reads_several(index) for node, index in self.readers.get(value, ()))
        )

    @cached_property
    def may_be_rings(self) -> tuple[Value, ...]:
        """Values of `may_be_carried` that may be rings: they are the first operand of multi-row readers."""
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
        """Resident values, which have room for all rows."""
        return (*self.sources, *self.fronts)

    def above(self, value: Value) -> int:
        """Return the number of padding rows that are written above a value."""
        return max((n.readings[i].above for n, i in self.readers.get(value, ())), default=0)

    def below(self, value: Value) -> int:
        """Return the number of padding rows that are written below a value."""
        return max((n.readings[i].below for n, i in self.readers.get(value, ())), default=0)

    def fill(self, value: Value) -> float:
        """Return the fill of a value's padding."""
        fills = (n.readings[i].fill for n, i in self.readers.get(value, ()))
        return next((fill for fill in fills if fill is not None), 0.0)


def region_of(
    graph: Graph, nodes: Sequence[RowNode], start: int = 0, pushed: Collection[Value] | None = None
) -> StreamRegion | str:
    """Return consecutive nodes of a graph as a region, or the reason why they are none.

    Args:
        nodes: row nodes of ``graph.nodes[start:start + len(nodes)]``.
        pushed: inputs that are streamed; all others are complete before. Default: all inputs are streamed.
    """
    inside = graph.nodes[start : start + len(nodes)]
    if tuple(each.node for each in nodes) != tuple(inside):
        raise ValueError("a region must consist of consecutive nodes of a graph")
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
        first, second = (value.short_name for value in inputs[:2])
        return f"only one image can be streamed; the region needs %{first} and %{second}"
    for value in inputs:
        if not taken[value].columns and views[value].root in behind | before:
            return f"the input %{value.short_name} is also read outside of the region, which needs all of it"
    fronts = tuple(each.output for each in nodes if each.output in behind)
    outlives = frozenset(value for value in sources if views[value].root in behind)
    return StreamRegion(
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
    """Return why values cannot be read or computed row by row, or None if they can."""
    state = {state.value for state in graph.state}
    for value, found in readers.items():
        fills = {node.readings[index].fill for node, index in found} - {None}
        if len(fills) > 1:
            return f"%{value.short_name} is padded with {len(fills)} different fills"
        if views[value].root in state:
            return f"%{value.short_name} is kept between runs as a complete tensor"
    for value in sources:
        padded = any(node.readings[index].fill is not None for node, index in readers[value])
        if padded and not _is_all(value, views):
            whole = views[value].root
            return f"%{value.short_name} is a part of %{whole.short_name}, which has no room for padding"
    for each in nodes:
        whole = views[each.output].root
        if whole is not each.output:
            return f"%{each.output.short_name} is computed into %{whole.short_name}, a complete tensor"
    return None


def _is_all(value: Value, views: Views) -> bool:
    """Return whether a value occupies all of its storage."""
    return value.type.nbytes == views[value].root.type.nbytes
