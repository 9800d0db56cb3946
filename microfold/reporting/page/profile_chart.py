"""Chart of a device's profile and the estimate: the share of each layer in the run time by either."""

from __future__ import annotations

from msgspec import Struct

from microfold.reporting.page.scale import WIDTH, ChartColumn, Linear, Tick, columns, number, round_number
from microfold.reporting.profile import DeviceProfile
from microfold.reporting.schema import BuildReport, ReportedLayer

_LEFT, _RIGHT, _TOP, _PLOT, _BOTTOM = 72.0, 12.0, 16.0, 190.0, 40.0
_NARROWEST, _WIDEST = 15.0, 110.0
# Limits of the ratio between measured and estimated share from which a layer counts as slow or fast.
_SLOW, _FAST = 1.25, 0.8


class BarPair(Struct, frozen=True):
    """Two bars of a layer: estimated and measured share.

    Attributes:
        kind: ``slow`` or ``fast`` if they differ much, else ``like``.
    """

    layer: int
    x: float
    width: float
    estimated_y: float
    estimated_height: float
    measured_y: float
    measured_height: float
    kind: str
    tip: str


class ProfileChart(Struct, frozen=True):
    """Data of the drawing.

    Attributes:
        unit: unit of the estimate.
        ratio: ticks per unit, over all measured layers.
        slow: names of layers that are slower than estimated, the worst first, each with the factor.
    """

    width: float
    height: float
    left: float
    right: float
    bottom: float
    columns: list[ChartColumn]
    ticks: list[Tick]
    pairs: list[BarPair]
    unit: str
    ratio: str
    total: str
    missing: int
    slow: list[tuple[str, str]]


def profile_chart(report: BuildReport, profile: DeviceProfile) -> ProfileChart | None:
    """Return the drawing, or None if no layer has both a measurement and an estimate."""
    cycles = report.estimated_cycles is not None
    estimates = {i: _estimate(layer, cycles) for i, layer in enumerate(report.layers)}
    known = {i: e for i, e in estimates.items() if e is not None and i in profile.ticks}
    ticks, total = sum(profile.ticks[i] for i in known), sum(known.values())
    if not ticks or not total:
        return None
    shares = {i: (e / total, profile.ticks[i] / ticks) for i, e in known.items()}
    steps = columns(len(report.layers), _LEFT, WIDTH - _RIGHT, _NARROWEST, _WIDEST)
    right, bottom = round(steps[-1].x + steps[-1].width, 1), _TOP + _PLOT
    most = 100 * max(max(pair) for pair in shares.values())
    y = Linear(most, bottom, _TOP)
    step = round_number(most / 4)
    pairs = [_pair(steps[i], report.layers[i], known[i], profile.ticks[i], shares[i], y) for i in known]
    factors = {i: shares[i][1] / shares[i][0] for i in known if shares[i][0]}
    slow = sorted((i for i, f in factors.items() if f >= _SLOW), key=lambda i: factors[i], reverse=True)
    return ProfileChart(
        width=max(right + _RIGHT, 420.0),
        height=bottom + _BOTTOM,
        left=_LEFT,
        right=right,
        bottom=bottom,
        columns=steps,
        ticks=[Tick(y(v), f"{v} %") for v in range(0, int(most) + 1, step)],
        pairs=pairs,
        unit="cycle" if cycles else "instruction",
        ratio=f"{ticks / total:.2f}",
        total=number(sum(profile.ticks.values())),
        missing=len(report.layers) - len(profile.ticks),
        slow=[(report.layers[i].name, f"{factors[i]:.2f}") for i in slow[:5]],
    )


def _estimate(layer: ReportedLayer, cycles: bool) -> int | None:
    if cycles:
        return layer.estimated_cycles
    return layer.instructions if layer.instructions is not None else layer.estimated_instructions


def _pair(
    column: ChartColumn,
    layer: ReportedLayer,
    estimate: int,
    ticks: int,
    shares: tuple[float, float],
    y: Linear,
) -> BarPair:
    estimated, measured = (y(100 * share) for share in shares)
    factor = shares[1] / shares[0] if shares[0] else 1.0
    kind = "slow" if factor >= _SLOW else "fast" if factor <= _FAST else "like"
    tip = (
        f"layer {column.layer}: {layer.name}\nestimated {number(estimate)}, {100 * shares[0]:.1f} %\n"
        f"measured {number(ticks)} ticks, {100 * shares[1]:.1f} %\n{factor:.2f} times the estimated share"
    )
    gap = min(column.width * 0.14, 6)
    return BarPair(
        column.layer,
        round(column.x + gap, 1),
        round(column.width / 2 - gap, 1),
        estimated,
        round(y(0) - estimated, 1),
        measured,
        round(y(0) - measured, 1),
        kind,
        tip,
    )
