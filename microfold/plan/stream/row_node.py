"""Nodes of a graph that are computed row by row, with the rows that each row needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from microfold.ir import limits
from microfold.ir.node import Node, Value
from microfold.ir.op import Op
from microfold.kernels.band import LayerBand, layer_band, remembered_band
from microfold.kernels.layer import LayerContext
from microfold.ops.reduce.pixel_sums import PixelSums
from microfold.ops.rows import REFUSED, ROWS, Band, OperandRows, Rows, band, row_pitch
from microfold.support.frozen import frozen

# Which band of a node a row is: bands with equal forms are the same layer, on other rows.
Form = tuple[Op, tuple[int | None, ...]]
# Forms that a node may have: kernels are chosen for each of them.
MOST_FORMS = 512
# A row behind all others.
NEVER = 1 << 30


@frozen
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


@frozen(eq=False)
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

    def reads(self, part: int) -> Sequence[tuple[Value, Rows]]:
        """What the band of a part reads, operand by operand."""
        return self._reads[part]

    @cached_property
    def _reads(self) -> Sequence[Sequence[tuple[Value, Rows]]]:
        found = [(self.node.inputs[index], reading.spans) for index, reading in self.readings.items()]
        known = [(value, spans) for value, spans in found if value is not None]
        return [[(value, spans[part]) for value, spans in known] for part in range(len(self.parts))]


def by_rows(layer: LayerContext, width: int = 1, parts: Sequence[Rows] | None = None) -> RowNode | str:
    """Return a layer row by row, or the reason why that cannot be.

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
    images = [v.type for v in (*node.operands, node.output) if v not in layer.constants and v.type.rank == 4]
    if max(image.shape[ROWS] for image in images) > limits.STREAMED_ROWS:
        return f"its images may have {limits.STREAMED_ROWS} rows"
    if max(image.nbytes for image in images) > limits.STREAMED_BYTES:
        return f"its images may have {limits.STREAMED_BYTES} bytes"
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
                return f"for each row it reads other rows of the constant %{value.brief}"
            continue
        rows = [part for found in bands if (part := found.operands[index]) is not None]
        if len(rows) != len(bands):
            return f"it reads all of %{value.brief}, which is computed, for every row"
        height = value.type.shape[value.type.rank - 3]
        fills = {part.fill for part in rows if part.padded}
        if value.type.rank != 4 or len(fills) > 1:
            return f"rows are those of images [1, H, W, C]; it reads %{value.brief} as {value.type}"
        spans = tuple((p.start - p.above, p.stop + p.below) for p in rows)
        # Without rows of its own above or below padding, these would not follow each other.
        if any((p.above and p.start) or (p.below and p.stop != height) for p in rows):
            return f"it reads padding apart from the rows of %{value.brief}"
        readings[index] = Reading(spans, height, fills.pop() if fills else None)
    if not readings:
        return "it reads nothing that is computed or handed in"
    forms = [(b.op, tuple(p.count if p is not None else None for p in b.operands)) for b in bands]
    if len({*forms}) > MOST_FORMS:
        return f"its rows are of {len({*forms})} kinds, each a layer of its own; there may be {MOST_FORMS}"
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
    if (refused := REFUSED.get(type(layer.node.op))) is not None:
        return refused
    if len(layer.node.outputs) != 1:
        return f"it has {len(layer.node.outputs)} results"
    if layer.node.output.type.rank != 4:
        return f"its result must be an image [1, H, W, C]; it is {layer.node.output.type}"
    found = layer_band(layer, (0, 1))
    return found if isinstance(found, str) else None


def pitch(value: Value) -> int:
    """Bytes of a row."""
    return row_pitch(value.type)
