"""Division of the first nodes of a graph into tiles, each for some columns of an image.

    %a: int8[1,8,8,4] = conv2d(%x, %w, %b) {... padding=[(1, 1), (1, 1)] ...}
    %y: int8[1,8,8,4] = depthwise_conv2d(%a, %v, %c) {... padding=[(1, 1), (1, 1)] ...}
        ->
    %x.0: int8[1,8,6,3] = strided_slice(%x) {begin=[0, 0, 0, 0] ...}
    %a.0: int8[1,8,5,4] = conv2d(%x.0, %w, %b) {... padding=[(1, 1), (1, 0)] ...}
    %y.0: int8[1,8,4,4] = depthwise_conv2d(%a.0, %v, %c) {... padding=[(1, 1), (1, 0)] ...}
    %x.1: int8[1,8,6,3] = strided_slice(%x) {begin=[0, 0, 2, 0] ...}
    %a.1: int8[1,8,5,4] = conv2d(%x.1, %w, %b) {... padding=[(1, 1), (0, 1)] ...}
    %y.1: int8[1,8,4,4] = depthwise_conv2d(%a.1, %v, %c) {... padding=[(1, 1), (0, 1)] ...}
    %y: int8[1,8,8,4] = concatenate(%y.0, %y.1) {axis=2}

Columns at the seams are computed once for each of the tiles that need them. Streamed layers then have windows
with rows of a tile's width, which is the purpose of tiles; see `microfold.lowering.stream_tiles`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from msgspec import Struct

from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value, describe, make_node
from microfold.ir.op import Pattern
from microfold.ops.columns import COLUMNS, ColumnPart, Columns, column_part
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.strided_slice import StridedSlice


class ColumnTile(Struct, frozen=True, eq=False):
    """Nodes that compute some columns.

    Attributes:
        slices: nodes that slice columns from values that the tile reads but does not compute.
        nodes: all other nodes, in order.
        originals: for each node that computes columns, the original node; other nodes slice values of the
            tile.
    """

    slices: Sequence[Node]
    nodes: Sequence[Node]
    originals: Mapping[Node, Node]

    @property
    def macs(self) -> int:
        return sum(node.macs() for node in self.nodes)

    def __len__(self) -> int:
        return len(self.slices) + len(self.nodes)


class Tiled(Struct, frozen=True, eq=False):
    """A graph in which some nodes compute columns.

    Attributes:
        start: number of nodes before the first tile; the tiles follow each other.
        joins: nodes after the last tile that join the results of the tiles.
    """

    graph: Graph
    start: int
    tiles: Sequence[ColumnTile]
    joins: Sequence[Node]


def tile_columns(graph: Graph, start: int, end: int, bounds: Sequence[int]) -> Tiled | str:
    """Return the graph with some of its nodes divided into tiles, or the reason why that is impossible.

    Args:
        start, end: the nodes, ``graph.nodes[start:end]``.
        bounds: columns of the results at which tiles begin and end; the first is 0, the last is the width.
    """
    nodes, behind = graph.nodes[start:end], graph.nodes[end:]
    read_behind = {value for node in behind for value in node.operands}
    read_behind |= {*graph.outputs, *(state.next for state in graph.state)}
    fronts = [value for node in nodes for value in node.outputs if value in read_behind]
    tiles: list[ColumnTile] = []
    pieces: dict[Value, list[Value]] = {value: [] for value in fronts}
    for number, columns in enumerate(pairwise(bounds)):
        tile = _Columns(graph, nodes, f".{number}")
        for value in fronts:
            if value.type.rank != 4 or value.type.shape[COLUMNS] != bounds[-1]:
                return f"%{value.short_name} is no image of {bounds[-1]} columns"
            tile.needed[value] = columns
        reason = tile.find()
        if reason is not None:
            return reason
        tile.build()
        for value in fronts:
            pieces[value].append(tile.columns(value, columns))
        tiles.append(ColumnTile(tile.slices, tile.made, tile.originals))
    joins = [Node(Concatenate(COLUMNS), tuple(found), (value,)) for value, found in pieces.items()]
    made = [node for tile in tiles for node in (*tile.slices, *tile.nodes)]
    changed = graph.with_nodes([*graph.nodes[:start], *made, *joins, *behind])
    return Tiled(changed, start, tiles, joins)


@dataclass
class _Columns:
    """Columns of the results of some nodes.

    Attributes:
        suffix: suffix of the names of its values.
        needed: the columns of each value that are read.
        parts: operator and operand columns of each node.
        slices, made: the created nodes, in order.
        results: created values, by the values whose columns they have.
        cut: slices of these values, if only some of their columns are read.
    """

    graph: Graph
    nodes: Sequence[Node]
    suffix: str
    needed: dict[Value, Columns] = field(default_factory=dict[Value, Columns])
    parts: dict[Node, ColumnPart] = field(default_factory=dict[Node, ColumnPart])
    slices: list[Node] = field(default_factory=list[Node])
    made: list[Node] = field(default_factory=list[Node])
    originals: dict[Node, Node] = field(default_factory=dict[Node, Node])
    results: dict[Value, Value] = field(default_factory=dict[Value, Value])
    cut: dict[tuple[Value, Columns], Value] = field(default_factory=dict[tuple[Value, Columns], Value])

    def find(self) -> str | None:
        """Find the needed columns of all values; return the reason if some node cannot compute columns."""
        for node in reversed(self.nodes):
            found = self._part(node)
            if isinstance(found, str):
                return f"{describe(node)}: {found}"
            self.parts[node] = found
            for value, columns in zip(node.inputs, found.operands, strict=True):
                if value is not None and columns is not None:
                    first, last = self.needed.get(value, columns)
                    self.needed[value] = min(first, columns[0]), max(last, columns[1])
        return None

    def _part(self, node: Node) -> ColumnPart | str:
        if len(node.outputs) != 1 or node.output not in self.needed:
            return "it must have a single result that is read"
        if any(step.operands or step.op.pattern is not Pattern.ELEMENTWISE for step in node.epilogue):
            return "its epilogue must be elementwise, without operands"
        types = [value.type if value is not None else None for value in node.inputs]
        found = column_part(node.op, types, self.needed[node.output])
        if isinstance(found, str):
            return found
        for value, columns in zip(node.inputs, found.operands, strict=True):
            if value is not None and (value in self.graph.constants) != (columns is None):
                return f"it must read %{value.short_name} column by column"
            if columns is not None and value is not None and value.type.rank != 4:
                return (
                    f"columns are those of images [1, H, W, C]; it reads %{value.short_name} as {value.type}"
                )
        return found

    def build(self) -> None:
        """Create the nodes."""
        computed = {node.output for node in self.nodes}
        for value, columns in self.needed.items():
            if value not in computed:
                width = value.type.shape[COLUMNS]
                name = value.name + self.suffix
                self.results[value] = _sliced(value, (0, width), columns, name, self.slices)
        for node in self.nodes:
            part = self.parts[node]
            inputs = [
                self.columns(value, columns) if value is not None and columns is not None else value
                for value, columns in zip(node.inputs, part.operands, strict=True)
            ]
            made = make_node(part.op, inputs, [node.output.name + self.suffix], node.epilogue)
            self.made.append(made)
            self.originals[made] = node
            self.results[node.output] = made.output

    def columns(self, value: Value, columns: Columns) -> Value:
        """Return some columns of a value: the tile's value, or a slice of it."""
        if (value, columns) not in self.cut:
            source = self.results[value]
            name = f"{source.name}/{columns[0]}"
            self.cut[value, columns] = _sliced(source, self.needed[value], columns, name, self.made)
        return self.cut[value, columns]


def _sliced(source: Value, there: Columns, columns: Columns, name: str, nodes: list[Node]) -> Value:
    """Return the columns, as the source itself or as a slice of it, whose node is appended to `nodes`."""
    if columns == there:
        return source
    shape = source.type.shape
    begin = (0, 0, columns[0] - there[0], 0)
    size = (*shape[:COLUMNS], columns[1] - columns[0], *shape[COLUMNS + 1 :])
    nodes.append(make_node(StridedSlice(begin, size, (1, 1, 1, 1)), [source], [name]))
    return nodes[-1].output
