"""Regions: the first nodes of a graph, computed row by row, with the rows that each row needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.ir.views import Views
from microfold.kernels.band import LayerBand, layer_band
from microfold.kernels.layer import LayerContext
from microfold.ops.reduce.pixel_sums import PixelSums
from microfold.ops.rows import ROWS, Band, OperandRows, Rows, band, row_pitch

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
    """

    layer: LayerContext
    parts: tuple[Rows, ...]
    forms: tuple[Form, ...]
    readings: Mapping[int, Reading]
    accumulates: bool = False

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

    def written(self, part: int) -> Rows:
        """The rows of its result that it writes."""
        return (0, 1) if self.accumulates else self.parts[part]

    @cached_property
    def bands(self) -> Mapping[Form, LayerBand]:
        """The band of the first part of each form."""
        found: dict[Form, LayerBand] = {}
        for part, form in enumerate(self.forms):
            if form not in found:
                made = self._sums(part) if self.accumulates else layer_band(self.layer, self.parts[part])
                if isinstance(made, str):
                    raise AssertionError(f"{self.output!r}: {made}")
                found[form] = made
        return found

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


def by_rows(layer: LayerContext, width: int = 1) -> RowNode | str:
    """A layer row by row, or the reason why that cannot be.

    Args:
        width: rows of each call; the last one may compute fewer.
    """
    node = layer.node
    if any(value in layer.constants for value in node.outputs):
        return "its result is a constant"
    types = [value.type if value is not None else None for value in node.inputs]
    first = layer_band_reason(layer)
    if first is not None:
        return first
    bands: list[Band] = []
    height = node.output.type.shape[ROWS]
    parts = tuple((row, min(row + width, height)) for row in range(0, height, width))
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
    return RowNode(layer, parts, tuple(forms), readings)


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
        nodes: the first ones of the graph.
        rest: the graph's other nodes.
        inputs: of the graph: those whose rows are handed in.
        fronts: results of `nodes` that the rest of the graph reads, or the caller: held whole.
        readers: of each streamed value: the node and the index of the operand.
    """

    graph: Graph
    nodes: tuple[RowNode, ...]
    rest: tuple[Node, ...]
    inputs: tuple[Value, ...]
    fronts: tuple[Value, ...]
    readers: Mapping[Value, Sequence[tuple[RowNode, int]]]
    producers: Mapping[Value, RowNode]

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


def region_of(graph: Graph, nodes: Sequence[RowNode]) -> Region | str:
    """The first nodes of a graph as a region, or the reason why they are none.

    Args:
        nodes: those of ``graph.nodes[:len(nodes)]``.
    """
    streamed = {each.node for each in nodes}
    rest = tuple(graph.nodes[len(nodes) :])
    readers: dict[Value, list[tuple[RowNode, int]]] = {}
    for each in nodes:
        for index in each.readings:
            value = each.node.inputs[index]
            assert value is not None
            readers.setdefault(value, []).append((each, index))
    for value, found in readers.items():
        fills = {node.readings[index].fill for node, index in found} - {None}
        if len(fills) > 1:
            return f"%{value.name} is padded in {len(fills)} different ways"
        if value in {state.value for state in graph.state}:
            return f"%{value.name} is kept from run to run: it is there whole"
    views = Views(graph)
    for each in nodes:
        if views[each.output].root is not each.output:
            return (
                f"%{each.output.name} is computed into %{views[each.output].root.name}, which is there whole"
            )
    outside = {views[v].root for node in rest for v in node.operands}
    outside |= {views[v].root for v in (*graph.outputs, *(state.next for state in graph.state))}
    computed = [each.output for each in nodes]
    inputs = tuple(value for value in graph.inputs if value in readers)
    for value in inputs:
        if value in outside:
            return f"the input %{value.name} is also read behind the region: it would have to be there whole"
    if any(node not in streamed for node in graph.nodes[: len(nodes)]):
        raise ValueError("a region is the first nodes of a graph")
    producers = {each.output: each for each in nodes}
    fronts = tuple(value for value in computed if value in outside)
    return Region(graph, tuple(nodes), rest, inputs, fronts, readers, producers)


def pitch(value: Value) -> int:
    """Bytes of a row."""
    return row_pitch(value.type)
