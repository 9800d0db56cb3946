"""Regions: nodes of a graph that are computed row by row, with the rows that each row needs."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.views import Views, needs_no_code
from microfold.kernels.band import LayerBand, layer_band, remembered_band
from microfold.kernels.layer import LayerContext
from microfold.ops.reduce.pixel_sums import PixelSums
from microfold.ops.rows import ROWS, Band, OperandRows, Rows, band, row_pitch
from microfold.plan.stream.inputs import InputRows, taken_rows

# Which band of a node a row is: bands with equal forms are the same layer, on other rows.
Form = tuple[Op, tuple[int | None, ...]]
# A row behind all others.
NEVER = 1 << 30


@dataclass(frozen=True)
class Reading:
    """The rows of one operand that a node reads for each part of its result.

    Attributes:
        spans: for each part of the result; rows below 0 and from `height` on are padding.
        height: rows of the operand.
        fill: each element of the padding; None: there is none.
    """

    spans: tuple[Rows, ...]
    height: int
    fill: float | None

    @cached_property
    def held(self) -> tuple[int, ...]:
        """The first row that a part of the result, or one behind it, still needs; at the end: `NEVER`."""
        rows = [NEVER]
        for first, _ in reversed(self.spans):
            rows.append(min(first, rows[-1]))
        return tuple(reversed(rows))

    def pads(self, part: int) -> bool:
        """Whether a part of the result reads padding."""
        first, last = self.spans[part]
        return first < 0 or last > self.height

    @property
    def above(self) -> int:
        """Rows of padding above the operand."""
        return max(0, -min(first for first, _ in self.spans))

    @property
    def below(self) -> int:
        """Rows of padding below it."""
        return max(0, max(last for _, last in self.spans) - self.height)


@dataclass(frozen=True, eq=False)
class RowNode:
    """A node that works by rows.

    Attributes:
        parts: of its result: the rows that each call computes, in order.
        forms: of the band of each part.
        readings: of the operands of which it reads rows, by their indices.
        accumulates: it adds rows of its operand to its result, the only row of that; `parts`, `forms` and
            `readings` are those of the rows that it adds.
        by_address: it is given the address of each row of its first operand.
    """

    layer: LayerContext
    parts: tuple[Rows, ...]
    forms: tuple[Form, ...]
    readings: Mapping[int, Reading]
    accumulates: bool = False
    by_address: bool = False

    @property
    def node(self) -> Node:
        return self.layer.node

    @property
    def output(self) -> Value:
        return self.node.output

    @property
    def width(self) -> int:
        """How many rows a call computes at most."""
        return max(last - first for first, last in self.parts)

    def reads_several(self, index: int) -> bool:
        """Whether it reads several rows of an operand at once."""
        return index in self.readings and any(last - first > 1 for first, last in self.readings[index].spans)

    def written(self, part: int) -> Rows:
        """The rows of its result that it writes."""
        return (0, 1) if self.accumulates else self.parts[part]

    @cached_property
    def bands(self) -> Mapping[Form, LayerBand]:
        """A band of each form: if any reads padding one that does, which its ranges include."""
        chosen: dict[Form, int] = {}
        for part, form in enumerate(self.forms):
            if form not in chosen or self._is_padded(part) > self._is_padded(chosen[form]):
                chosen[form] = part
        found: dict[Form, LayerBand] = {}
        for form, part in chosen.items():
            made = self._sums(part) if self.accumulates else remembered_band(self.layer, self.parts[part])
            if isinstance(made, str):
                raise AssertionError(f"{self.output!r}: {made}")
            found[form] = made if not self.by_address else made.reading_rows
        return found

    def addressed(self, by_address: bool) -> RowNode:
        """The same node, given the addresses of its rows or not: the same object whenever it is asked for."""
        if by_address == self.by_address:
            return self
        key = RowNode, self.parts, by_address
        return self.layer.remembered(key, lambda: replace(self, by_address=by_address))

    def _is_padded(self, part: int) -> bool:
        return any(reading.pads(part) for reading in self.readings.values())

    def _sums(self, row: int) -> LayerBand:
        """What adds a row."""
        op, _ = self.forms[row]
        rows = OperandRows(row, row + 1)
        value = self.node.operands[0]
        node = Node(op, (Value(value.name, rows.type(value.type)),), self.node.outputs)
        return LayerBand(replace(self.layer, node=node, band_of=self.node), (row, row + 1), (rows,))

    def reads(self, part: int) -> list[tuple[Value, Rows]]:
        """What the band of a part reads, operand by operand."""
        found: list[tuple[Value, Rows]] = []
        for index, reading in self.readings.items():
            value = self.node.inputs[index]
            assert value is not None
            found.append((value, reading.spans[part]))
        return found


def by_rows(layer: LayerContext, width: int = 1, parts: Sequence[Rows] | None = None) -> RowNode | str:
    """A layer row by row, or the reason why that cannot be.

    Args:
        width: rows of each call; the last one may compute fewer.
        parts: the rows of each call, in their order, if they are not of equal height.
    """
    node = layer.node
    if any(value in layer.constants for value in node.outputs):
        return "its result is a constant"
    reason = layer_band_reason(layer)
    if reason is not None:
        return reason
    height = node.output.type.shape[ROWS]
    rows = (*(parts or ((row, min(row + width, height)) for row in range(0, height, width))),)
    return layer.remembered((RowNode, rows, False), lambda: _in_parts(layer, rows))


def _in_parts(layer: LayerContext, parts: Sequence[Rows]) -> RowNode | str:
    node = layer.node
    types = [value.type if value is not None else None for value in node.inputs]
    bands: list[Band] = []
    for part in parts:
        found = band(node.op, types, part)
        if isinstance(found, str):
            return f"row {part[0]}: {found}"
        bands.append(found)
    readings: dict[int, Reading] = {}
    for index, value in enumerate(node.inputs):
        if value is None:
            continue
        if value in layer.constants:
            if len(bands) > 1 and bands[0].operands[index] is not None:
                return f"for each row it reads other rows of the constant %{value.name}"
            continue
        rows = [part for found in bands if (part := found.operands[index]) is not None]
        if len(rows) != len(bands):
            return f"it reads all of %{value.name}, which is computed, for every row"
        height = value.type.shape[value.type.rank - 3]
        fills = {part.fill for part in rows if part.padded}
        if value.type.rank != 4 or len(fills) > 1:
            return f"rows are those of images [1, H, W, C]; it reads %{value.name} as {value.type}"
        spans = tuple((p.start - p.above, p.stop + p.below) for p in rows)
        # Without rows of its own above or below padding, these would not follow each other.
        if any((p.above and p.start) or (p.below and p.stop != height) for p in rows):
            return f"it reads padding apart from the rows of %{value.name}"
        readings[index] = Reading(spans, height, fills.pop() if fills else None)
    if not readings:
        return "it reads nothing that is computed or handed in"
    forms = [(b.op, tuple(p.count if p is not None else None for p in b.operands)) for b in bands]
    return RowNode(layer, tuple(parts), tuple(forms), readings)


def following(node: RowNode, read: RowNode, width: int) -> RowNode | str:
    """A layer whose calls compute what can be computed whenever one before it has computed rows.

    So no rows of that wait for the next ones, which they would if both began with as many.

    Args:
        node: with a call for each row.
        read: what it reads, with the calls that there are.
        width: most rows of each call.
    """
    readings = [each for index, each in node.readings.items() if node.node.inputs[index] is read.output]
    ends = [max(each.spans[row][1] for each in readings) for row in range(len(node.parts))]
    height = readings[0].height
    needs = [min(end, height) for end in ends]
    parts: list[Rows] = []
    done = 0
    for _, there in read.parts:
        while done < len(needs) and needs[done] <= there:
            last = min(done + width, len(needs))
            # Room for padding below is made when rows above are not needed any more.
            while needs[last - 1] > there or ends[last - 1] > max(ends[done], height):
                last -= 1
            parts.append((done, last))
            done = last
    return by_rows(node.layer, parts=parts)


def sums_by_rows(layer: LayerContext) -> RowNode:
    """A layer of `PixelSums` row by row."""
    value = layer.node.operands[0]
    height = value.type.shape[ROWS]
    forms: tuple[Form, ...] = tuple((PixelSums(adds=row > 0), (1,)) for row in range(height))
    reading = Reading(tuple((row, row + 1) for row in range(height)), height, None)
    return RowNode(layer, reading.spans, forms, {0: reading}, accumulates=True)


def layer_band_reason(layer: LayerContext) -> str | None:
    """Why a layer has no bands."""
    if len(layer.node.outputs) != 1:
        return f"it has {len(layer.node.outputs)} results"
    if layer.node.output.type.rank != 4:
        return f"its result must be an image [1, H, W, C]; it is {layer.node.output.type}"
    found = layer_band(layer, (0, 1))
    return found if isinstance(found, str) else None


@dataclass(frozen=True, eq=False)
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
        return f"rows are those of one image; %{inputs[0].name} and %{inputs[1].name} would be handed in"
    for value in inputs:
        if not taken[value].columns and views[value].root in behind | before:
            return (
                f"the input %{value.name} is also read outside of the region: it would have to be there whole"
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
            return f"%{value.name} is padded in {len(fills)} different ways"
        if views[value].root in state:
            return f"%{value.name} is kept from run to run: it is there whole"
    for value in sources:
        padded = any(node.readings[index].fill is not None for node, index in readers[value])
        if padded and not _is_all(value, views):
            return (
                f"%{value.name} is a part of %{views[value].root.name}, and its rows have no room around them"
            )
    for each in nodes:
        if views[each.output].root is not each.output:
            return (
                f"%{each.output.name} is computed into %{views[each.output].root.name}, which is there whole"
            )
    return None


def _is_all(value: Value, views: Views) -> bool:
    """Whether it is all of the storage that it is in."""
    return value.type.nbytes == views[value].root.type.nbytes


def pitch(value: Value) -> int:
    """Bytes of a row."""
    return row_pitch(value.type)
