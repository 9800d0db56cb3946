"""Layers of the page: strip of their costs, table rows, and kernel selection."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from microfold.reporting.page.palette import Palette
from microfold.reporting.page.scale import CHARACTER, WIDTH, number, rank, shortened
from microfold.reporting.profile import DeviceProfile
from microfold.reporting.schema import BuildReport, ReportedLayer

# Maximum length of a cell's bar, in units of its drawing.
BAR = 60.0


class Segment(Struct, frozen=True):
    """Part of the strip for one layer."""

    layer: int
    x: float
    width: float
    colour: str
    label: str
    tip: str


class FigureColumn(Struct, frozen=True):
    """Figure of all layers: a column of the table.

    Attributes:
        title: title of the column.
        hint: description of the figure.
        colour: style class of the bars.
    """

    title: str
    hint: str
    colour: str


class LayerCell(Struct, frozen=True):
    """Figure of a layer; `bar` is the length of its bar, and `value` its sort key."""

    value: float
    text: str
    bar: float


class LayerRow(Struct, frozen=True):
    """Table row of a layer."""

    index: int
    name: str
    tensor: str
    fused: str
    colour: str
    kernel: str
    output: str
    cells: list[LayerCell]


def costs(report: BuildReport) -> list[int | None]:
    """Return the instructions of each layer: executed ones if they were counted, else estimates."""
    counted = report.instructions is not None
    return [layer.instructions if counted else layer.estimated_instructions for layer in report.layers]


def cost_strip(report: BuildReport, palette: Palette) -> list[Segment]:
    """Return all layers side by side, as wide as their share of the instructions; empty if unknown."""
    found = [cost or 0 for cost in costs(report)]
    total = sum(found)
    segments: list[Segment] = []
    x = 0.0
    for index, (layer, cost) in enumerate(zip(report.layers, found, strict=True)):
        width = WIDTH * cost / total if total else 0.0
        share = f"{100 * cost / total:.1f} %" if total else ""
        if width:
            room = int((width - 8) / CHARACTER)
            label = next(
                (text for text in (f"{layer.name} {share}", layer.name, str(index)) if len(text) <= room), ""
            )
            tip = f"layer {index}: {layer.name}\n{number(cost)} instructions, {share}"
            segments.append(Segment(index, round(x, 2), round(width, 2), palette.of(layer), label, tip))
        x += width
    return segments


def layer_table(
    report: BuildReport, palette: Palette, profile: DeviceProfile | None
) -> tuple[list[FigureColumn], list[LayerRow]]:
    """Return the columns of figures and the rows; figures that no layer has are omitted."""
    kinds: list[tuple[FigureColumn, Callable[[ReportedLayer], int | None]]] = [
        (FigureColumn("MACs", "multiply-accumulates of one run", "macs"), lambda layer: layer.macs),
        (
            FigureColumn("instructions, estimated", "by the cost model", "estimated"),
            lambda layer: layer.estimated_instructions,
        ),
        (
            FigureColumn("instructions, counted", "executed by a simulated core", "counted"),
            lambda layer: layer.instructions,
        ),
        (
            FigureColumn(
                "cycles, estimated", "by the core's timing table or pipeline, without wait states", "cycles"
            ),
            lambda layer: layer.estimated_cycles,
        ),
        (
            FigureColumn("constants", "bytes of flash: weights and tables", "constants"),
            lambda layer: layer.weights,
        ),
        (
            FigureColumn("scratch", "bytes of the arena during the layer", "scratch"),
            lambda layer: layer.scratch,
        ),
    ]
    columns = [(figure, [value(layer) for layer in report.layers]) for figure, value in kinds]
    if profile is not None:
        ticks = [profile.ticks.get(i) for i in range(len(report.layers))]
        columns.insert(-2, (FigureColumn("ticks, measured", f"from {profile.source}", "ticks"), ticks))
    columns = [(figure, values) for figure, values in columns if any(values)]
    bars = [_cells(values) for _, values in columns]
    rows = [
        LayerRow(
            index,
            layer.name,
            layer.tensor,
            " + ".join(layer.fused),
            palette.of(layer),
            layer.kernel,
            str(layer.output),
            [column[index] for column in bars],
        )
        for index, layer in enumerate(report.layers)
    ]
    return [figure for figure, _ in columns], rows


def _cells(values: list[int | None]) -> list[LayerCell]:
    most = max(value or 0 for value in values)
    return [LayerCell(rank(value), number(value), round(BAR * (value or 0) / most, 1)) for value in values]


class CandidateRow(Struct, frozen=True):
    """Candidate kernel of a layer; `bar` is the length of its cost's bar."""

    kernel: str
    chosen: bool
    cost: str
    times: str
    bar: float


class LayerChoice(Struct, frozen=True):
    """Kernel selection for a layer, with the reason."""

    index: int
    name: str
    kernel: str
    colour: str
    verdict: str
    considered: list[CandidateRow]
    refused: list[tuple[str, str]]


def choices(report: BuildReport, palette: Palette) -> list[LayerChoice]:
    """Return the candidate kernels of each layer."""
    return [_choice(index, layer, palette) for index, layer in enumerate(report.layers)]


def _choice(index: int, layer: ReportedLayer, palette: Palette) -> LayerChoice:
    costs = {c.kernel: c.estimated_instructions for c in layer.candidates}
    ours = costs.get(layer.kernel)
    most = max(costs.values(), default=0)
    considered = [
        CandidateRow(
            kernel,
            kernel == layer.kernel,
            number(cost),
            f"{cost / ours:.2f}" if ours else "",
            round(BAR * cost / most, 1) if most else 0.0,
        )
        for kernel, cost in sorted(costs.items(), key=lambda item: (item[0] != layer.kernel, item[1]))
    ]
    cannot = sum(len(refusal.kernels) for refusal in layer.refused)
    if len(costs) == 1:
        verdict = "the only suitable kernel"
    elif ours is not None and ours == min(costs.values()):
        verdict = f"fewest instructions of {len(costs)} suitable kernels"
    elif costs:
        verdict = f"best of {len(costs)} suitable kernels, including memory"
    else:
        verdict = "external code"
    if cannot:
        verdict += f"; {cannot} {'kernel' if cannot == 1 else 'kernels'} rejected"
    refused = [(refusal.reason, ", ".join(refusal.kernels)) for refusal in layer.refused]
    return LayerChoice(
        index, shortened(layer.name, 40), layer.kernel, palette.of(layer), verdict, considered, refused
    )
