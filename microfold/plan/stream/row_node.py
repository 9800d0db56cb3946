"""Row nodes: nodes of a graph that are computed row by row, with the operand rows for each result row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from microfold.ir import limits
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.kernels.band import LayerBand, layer_band, remembered_band
from microfold.kernels.layer import LayerContext
from microfold.ops.reduce.pixel_sums import PixelSums
from microfold.ops.rows import REFUSED, ROWS, Band, OperandRows, Rows, band, row_pitch

# Band kind of a row: bands of equal kinds are the same layer, on other rows.
Form = tuple[Op, tuple[int | None, ...]]
# Maximum number of forms of a node: kernels are chosen for each form.
MOST_FORMS = 512
# Row number after all others.
NEVER = 1 << 30


class Reading(Struct, frozen=True, dict=True):
    """Rows of one operand that a node reads for each part of its result.

    Attributes:
        spans: range of rows for each part of the result; rows below 0 and from `height` on are padding.
        height: number of rows of the operand.
        fill: value of all padding elements; None: no padding.
    """

    spans: tuple[Rows, ...]
    height: int
    fill: float | None

    @cached_property
    def held(self) -> tuple[int, ...]:
        """First row that each part of the result or a later one still needs; `NEVER` at the end."""
        rows = [NEVER]
        for first, _ in reversed(self.spans):
            rows.append(min(first, rows[-1]))
        return tuple(reversed(rows))

    def pads(self, part: int) -> bool:
        """Return whether a part of the result reads padding."""
        first, last = self.spans[part]
        return first < 0 or last > self.height

    @property
    def above(self) -> int:
        """Number of padding rows above the operand."""
        return max(0, -min(first for first, _ in self.spans))

    @property
    def below(self) -> int:
        """Number of padding rows below the operand."""
        return max(0, max(last for _, last in self.spans) - self.height)


class RowNode(Struct, frozen=True, eq=False, dict=True):
    """Node that is computed row by row.

    Attributes:
        parts: rows of the result that each call computes, in order.
        forms: band kind of each part.
        readings: rows that it reads, by the index of the operand.
        accumulates: whether it adds rows of its operand to its result, which has a single row. `parts`,
            `forms` and `readings` then refer to the rows that it adds.
        by_address: whether it gets an indirection buffer for its first operand.
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
        """Maximum number of rows that a call computes."""
        return max(last - first for first, last in self.parts)

    def reads_several(self, index: int) -> bool:
        """Return whether a call reads several rows of an operand."""
        return index in self.readings and any(last - first > 1 for first, last in self.readings[index].spans)

    def written(self, part: int) -> Rows:
        """Return the rows of the result that a part writes."""
        return (0, 1) if self.accumulates else self.parts[part]

    @cached_property
    def bands(self) -> Mapping[Form, LayerBand]:
        """Band of each form, preferably one that reads padding, because its ranges include the others."""
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
        """Return the node with or without indirection buffer, always the same object."""
        if by_address == self.by_address:
            return self
        key = RowNode, self.parts, by_address
        return self.layer.remembered(key, lambda: replace(self, by_address=by_address))

    def _is_padded(self, part: int) -> bool:
        return any(reading.pads(part) for reading in self.readings.values())

    def _sums(self, row: int) -> LayerBand:
        """Return the band that adds a row."""
        op, _ = self.forms[row]
        rows = OperandRows(row, row + 1)
        value = self.node.operands[0]
        node = Node(op, (Value(value.name, rows.type(value.type)),), self.node.outputs)
        return LayerBand(replace(self.layer, node=node, parent_node=self.node), (row, row + 1), (rows,))

    def reads(self, part: int) -> Sequence[tuple[Value, Rows]]:
        """Return the operands and rows that the band of a part reads."""
        return self._reads[part]

    @cached_property
    def _reads(self) -> Sequence[Sequence[tuple[Value, Rows]]]:
        found = [(self.node.inputs[index], reading.spans) for index, reading in self.readings.items()]
        known = [(value, spans) for value, spans in found if value is not None]
        return [[(value, spans[part]) for value, spans in known] for part in range(len(self.parts))]


def as_row_node(layer: LayerContext, width: int = 1, parts: Sequence[Rows] | None = None) -> RowNode | str:
    """Return a layer as row node, or the reason why it cannot be computed row by row.

    Args:
        width: number of rows per call; the last call may compute fewer.
        parts: rows of each call, in order, if the calls do not have equal heights.
    """
    node = layer.node
    if any(value in layer.constants for value in node.outputs):
        return "its result is a constant"
    reason = layer_band_reason(layer)
    if reason is not None:
        return reason
    images = [v.type for v in (*node.operands, node.output) if v not in layer.constants and v.type.rank == 4]
    if max(image.shape[ROWS] for image in images) > limits.STREAMED_ROWS:
        return f"its images are limited to {limits.STREAMED_ROWS} rows"
    if max(image.nbytes for image in images) > limits.STREAMED_BYTES:
        return f"its images are limited to {limits.STREAMED_BYTES} bytes"
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
                return f"it reads different rows of the constant %{value.short_name} for each row"
            continue
        rows = [part for found in bands if (part := found.operands[index]) is not None]
        if len(rows) != len(bands):
            return f"it reads all of the computed value %{value.short_name} for every row"
        height = value.type.shape[value.type.rank - 3]
        fills = {part.fill for part in rows if part.padded}
        if value.type.rank != 4 or len(fills) > 1:
            return f"only images [1, H, W, C] have rows; it reads %{value.short_name} as {value.type}"
        spans = tuple((p.start - p.above, p.stop + p.below) for p in rows)
        # Rows between padding rows and the first or last row would be missing, so that rows would not be
        # contiguous.
        if any((p.above and p.start) or (p.below and p.stop != height) for p in rows):
            return f"it reads padding that is not adjacent to the rows of %{value.short_name}"
        readings[index] = Reading(spans, height, fills.pop() if fills else None)
    if not readings:
        return "none of its operands is computed or streamed"
    forms = [(b.op, tuple(p.count if p is not None else None for p in b.operands)) for b in bands]
    if len({*forms}) > MOST_FORMS:
        return f"its rows have {len({*forms})} forms, each a separate layer; the limit is {MOST_FORMS}"
    return RowNode(layer, tuple(parts), tuple(forms), readings)


def following(node: RowNode, read: RowNode, width: int) -> RowNode | str:
    """Return a layer that computes all possible rows whenever the layer before it has computed rows.

    Therefore no rows of the layer before have to wait for the next ones. They would if both layers simply
    computed the same number of rows per call.

    Args:
        node: layer with one call per row.
        read: layer before it, with its calls.
        width: maximum number of rows per call.
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
            # Bottom padding reuses the slots of released top rows.
            while needs[last - 1] > there or ends[last - 1] > max(ends[done], height):
                last -= 1
            parts.append((done, last))
            done = last
    return as_row_node(node.layer, parts=parts)


def sums_as_row_node(layer: LayerContext) -> RowNode:
    """Return a layer of `PixelSums` as row node."""
    value = layer.node.operands[0]
    height = value.type.shape[ROWS]
    forms: tuple[Form, ...] = tuple((PixelSums(adds=row > 0), (1,)) for row in range(height))
    reading = Reading(tuple((row, row + 1) for row in range(height)), height, None)
    return RowNode(layer, reading.spans, forms, {0: reading}, accumulates=True)


def layer_band_reason(layer: LayerContext) -> str | None:
    """Return why a layer has no bands, or None if it has."""
    if (refused := REFUSED.get(type(layer.node.op))) is not None:
        return refused
    if len(layer.node.outputs) != 1:
        return f"it has {len(layer.node.outputs)} results"
    if layer.node.output.type.rank != 4:
        return f"its result must be an image [1, H, W, C]; it is {layer.node.output.type}"
    found = layer_band(layer, (0, 1))
    return found if isinstance(found, str) else None


def pitch(value: Value) -> int:
    """Return the size of a row, in bytes."""
    return row_pitch(value.type)
