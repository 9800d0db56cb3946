"""Chart of memory over time: blocks of the arena as rectangles, layers along x, addresses along y."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

from msgspec import Struct
from msgspec.structs import replace

from microfold.reporting.page.palette import Palette
from microfold.reporting.page.scale import (
    CHARACTER,
    WIDTH,
    ChartColumn,
    Linear,
    Tick,
    columns,
    number,
    shortened,
)
from microfold.reporting.schema import BuildReport, ReportedBlock

_LEFT, _RIGHT = 72.0, 12.0
_TOP, _PLOT, _BOTTOM = 48.0, 330.0, 44.0
_NARROWEST, _WIDEST = 13.0, 190.0
# Height of a line of a label.
_LINE = 15.0


class Label(Struct, frozen=True):
    """Text of one or two lines; `x` is its middle, `y` the base line of its first line."""

    x: float
    y: float
    lines: tuple[str, ...]

    def collides(self, other: Label) -> bool:
        """Return whether two texts would overlap."""
        room = (
            self.half_width + other.half_width + CHARACTER,
            _LINE * max(len(self.lines), len(other.lines)),
        )
        return abs(self.x - other.x) < room[0] and abs(self.y - other.y) < room[1]

    @property
    def half_width(self) -> float:
        return CHARACTER / 2 * max(map(len, self.lines))


class BlockShape(Struct, frozen=True):
    """Rectangle of a block.

    Attributes:
        colour: style class of the operator that writes it, ``input`` or ``scratch``.
        layers: numbers of the layers during which it is alive, separated by blanks.
    """

    x: float
    y: float
    width: float
    height: float
    colour: str
    layers: str
    tip: str
    label: Label | None


class SharedShape(Struct, frozen=True):
    """Bytes that two blocks share during some layers."""

    x: float
    y: float
    width: float
    height: float
    tip: str


class Level(Struct, frozen=True):
    """Horizontal line with a label."""

    y: float
    kind: str
    text: str
    text_y: float


class PeakMark(Struct, frozen=True):
    """Layers during which the most bytes of the arena are in use.

    Attributes:
        layers: numbers of the layers.
        x: x coordinate of the first layer.
        anchor: SVG anchor of the text, chosen so that it stays within the drawing.
    """

    layers: tuple[int, ...]
    x: float
    text: str
    text_x: float
    anchor: str


class MemoryChart(Struct, frozen=True):
    """Data of the drawing; `left`, `right`, `top` and `bottom` bound the plot area."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    columns: list[ChartColumn]
    ticks: list[Tick]
    blocks: list[BlockShape]
    shared: list[SharedShape]
    levels: list[Level]
    peak: PeakMark


def memory_chart(report: BuildReport, palette: Palette) -> MemoryChart | None:
    """Return the drawing of a report's blocks, or None without blocks."""
    if not report.blocks or not report.layers:
        return None
    steps = columns(len(report.layers), _LEFT, WIDTH - _RIGHT, _NARROWEST, _WIDEST)
    right = round(steps[-1].x + steps[-1].width, 1)
    bottom = _TOP + _PLOT
    highest = max(report.ram.arena, *(b.end for b in report.blocks))
    y = Linear(highest, bottom, _TOP)
    return MemoryChart(
        # Minimum width for the texts if there are few layers.
        width=max(right + _RIGHT, 420.0),
        height=bottom + _BOTTOM,
        left=_LEFT,
        right=right,
        top=_TOP,
        bottom=bottom,
        columns=steps,
        ticks=y.ticks(),
        blocks=_labelled([_block(block, report, palette, steps, y) for block in report.blocks]),
        shared=list(_shared(report.blocks, steps, y)),
        levels=_levels(report, y),
        peak=_peak(report, steps),
    )


def block_name(block: ReportedBlock, report: BuildReport) -> str:
    """Return a short name of a block, because names in the model are often too long."""
    writer = report.layers[block.first_layer].name
    if block.kind == "scratch":
        return f"scratch of {writer}"
    if block.kind == "constants":
        return f"constants of {report.layers[block.last_layer].name}"
    return block.name if block.kind == "input" else writer


class _Drawn(Struct, frozen=True):
    """Block without a label, and the labels that fit into it, the best first."""

    shape: BlockShape
    labels: list[Label]


def _block(
    block: ReportedBlock, report: BuildReport, palette: Palette, steps: list[ChartColumn], y: Linear
) -> _Drawn:
    x, top = steps[block.first_layer].x, y(block.end)
    width = round(steps[block.last_layer].x + steps[block.last_layer].width - x, 1)
    height = round(y(block.offset) - top, 1)
    name = block_name(block, report)
    life = f"layer {block.first_layer}"
    if block.last_layer > block.first_layer:
        life = f"layers {block.first_layer} to {block.last_layer}"
    tip = f"{shortened(name, 60)}\n{number(block.bytes)} bytes at {number(block.offset)}\n{life}"
    if block.kind == "result" and block.name != name:
        tip += f"\n{shortened(block.name, 90)}"
    colour = palette.of(report.layers[block.first_layer]) if block.kind == "result" else block.kind
    layers = " ".join(map(str, range(block.first_layer, block.last_layer + 1)))
    labels = list(_labels(x, top, width, height, name, block))
    return _Drawn(BlockShape(x, top, width, max(height, 0.5), colour, layers, tip, None), labels)


def _labels(
    x: float, y: float, width: float, height: float, name: str, block: ReportedBlock
) -> Iterator[Label]:
    """Yield the labels that fit into a block, the best first: name and size, number and size, the size."""
    size = number(block.bytes)
    if height < _LINE or block.kind == "scratch":
        return
    above = (name, f"layer {block.first_layer}") if height >= 2 * _LINE else ()
    for lines in (*((text, size) for text in above), (size,)):
        if max(map(len, lines)) * CHARACTER <= width - 6:
            middle = y + height / 2 - (len(lines) - 1) * _LINE / 2
            yield Label(round(x + width / 2, 1), round(middle + 4, 1), lines)


def _labelled(drawn: list[_Drawn]) -> list[BlockShape]:
    """Assign to each block the best label that overlaps no other label. Larger blocks come first."""
    kept: dict[int, Label] = {}
    for index, each in sorted(enumerate(drawn), key=lambda pair: -pair[1].shape.width * pair[1].shape.height):
        free = (label for label in each.labels if not any(map(label.collides, kept.values())))
        label = next(free, None)
        if label is not None:
            kept[index] = label
    return [replace(each.shape, label=kept.get(index)) for index, each in enumerate(drawn)]


def _shared(blocks: tuple[ReportedBlock, ...], steps: list[ChartColumn], y: Linear) -> Iterator[SharedShape]:
    """Yield the areas in which blocks that are alive at the same time overlap."""
    begins: dict[int, list[ReportedBlock]] = defaultdict(list)
    for block in blocks:
        begins[block.first_layer].append(block)
    alive: list[ReportedBlock] = []
    for layer, new in sorted(begins.items(), key=lambda item: item[0]):
        alive = [block for block in alive if block.last_layer >= layer]
        pairs = [*((old, block) for old in alive for block in new), *combinations(new, 2)]
        for a, b in pairs:
            low, high = max(a.offset, b.offset), min(a.end, b.end)
            if low < high:
                x = steps[layer].x
                last = steps[min(a.last_layer, b.last_layer)]
                width, height = round(last.x + last.width - x, 1), round(y(low) - y(high), 1)
                tip = f"{number(high - low)} bytes shared on purpose:\na result overwrites an input in place"
                yield SharedShape(x, y(high), width, max(height, 0.5), tip)
        alive += new


def _levels(report: BuildReport, y: Linear) -> list[Level]:
    """Return the arena's size, and the lower bound of all plans for these kernels."""
    arena, bound = report.ram.arena, report.ram.arena_bound
    if arena == bound:
        text = f"arena: {number(arena)} bytes, proved minimal"
        return [Level(y(arena), "arena", text, y(arena) - 6)]
    # The label of the lower line is below it, so that the labels do not overlap.
    least = Level(y(bound), "bound", f"lower bound: {number(bound)} bytes", y(bound) + 14)
    return [least, Level(y(arena), "arena", f"arena: {number(arena)} bytes", y(arena) - 6)]


def bytes_in_use(report: BuildReport) -> list[int]:
    """Return the bytes of the arena in use during each layer; shared bytes count once."""
    alive: list[list[ReportedBlock]] = [[] for _ in report.layers]
    for block in sorted(report.blocks, key=lambda b: b.offset):
        for layer in range(block.first_layer, block.last_layer + 1):
            alive[layer].append(block)
    found: list[int] = []
    for blocks in alive:
        used = end = 0
        for block in blocks:
            used += max(block.end - max(block.offset, end), 0)
            end = max(end, block.end)
        found.append(used)
    return found


def _peak(report: BuildReport, steps: list[ChartColumn]) -> PeakMark:
    """Return the layers during which the most bytes are in use."""
    used = bytes_in_use(report)
    layers = tuple(i for i, each in enumerate(used) if each == max(used))
    first = steps[layers[0]]
    name = shortened(report.layers[first.layer].name, 32)
    text = f"peak: layer {first.layer}, {name}: {number(max(used))} bytes in use"
    half = len(text) * CHARACTER / 2
    end = steps[-1].x + steps[-1].width
    if first.middle - half < _LEFT or half * 2 > end - _LEFT:
        return PeakMark(layers, first.middle, text, first.x, "start")
    if first.middle + half > end:
        return PeakMark(layers, first.middle, text, round(end, 1), "end")
    return PeakMark(layers, first.middle, text, first.middle, "middle")
