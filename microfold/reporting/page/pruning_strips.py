"""Pruning certificate: the channels of each value that are not computed, and the reasons of the proof."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from microfold.reporting.page.scale import number, shortened
from microfold.reporting.schema import BuildReport, ReportedPrunedValue

# Length of a strip of channels, in units of its drawing.
STRIP = 420.0

_REASONS = {
    "constant": "constant: its value is part of its readers' biases",
    "unread": "unread: no output depends on it",
    "replaced": "constant: the whole tensor is constant, and became data",
}


class ChannelRun(Struct, frozen=True):
    """Neighbouring channels that are not computed for one reason."""

    x: float
    width: float
    kind: str


class Proof(Struct, frozen=True):
    """Channels with one reason and one interval of values."""

    reason: str
    interval: str
    channels: str
    size: int


class Strip(Struct, frozen=True):
    """Channels of a value."""

    op: str
    tensor: str
    full_tensor: str
    removed: int
    channels: int
    summary: str
    runs: list[ChannelRun]
    proofs: list[Proof]


class Certificate(Struct, frozen=True):
    """Certificate of one graph."""

    graph: str
    macs_before: int
    macs_after: int
    saved: str
    channels: int
    strips: list[Strip]


def certificates(report: BuildReport) -> list[Certificate]:
    """Return the certificates of all graphs of a model."""
    return [
        Certificate(
            pruned.graph,
            pruned.macs_before,
            pruned.macs_after,
            f"{100 * (1 - pruned.macs_after / pruned.macs_before):.1f} %" if pruned.macs_before else "",
            pruned.channels,
            [_strip(value) for value in pruned.values],
        )
        for pruned in report.pruned
    ]


def _strip(value: ReportedPrunedValue) -> Strip:
    reasons = {channel: each.reason for each in value.removed for channel in each.channels}
    counts: dict[str, int] = {}
    for reason in reasons.values():
        counts[reason] = counts.get(reason, 0) + 1
    return Strip(
        op=value.op,
        tensor=shortened(value.tensor.split(";")[0], 44),
        full_tensor=value.tensor,
        removed=len(reasons),
        channels=value.channels,
        summary=", ".join(f"{count} {reason}" for reason, count in sorted(counts.items())),
        runs=list(_runs(reasons, value.channels)),
        proofs=[
            Proof(
                _REASONS.get(each.reason, each.reason),
                number(each.low) if each.low == each.high else f"{number(each.low)} to {number(each.high)}",
                spans(each.channels),
                len(each.channels),
            )
            for each in value.removed
        ],
    )


def _runs(reasons: dict[int, str], channels: int) -> Iterator[ChannelRun]:
    unit = STRIP / max(channels, 1)
    begin = None
    for channel in sorted(reasons):
        begin = channel if begin is None else begin
        if reasons.get(channel + 1) != reasons[channel]:
            kind = "unread" if reasons[channel] == "unread" else "constant"
            yield ChannelRun(round(begin * unit, 2), round((channel + 1 - begin) * unit, 2), kind)
            begin = None


def spans(numbers: tuple[int, ...]) -> str:
    """Return the numbers in order as text, with runs as ``first-last``."""
    found: list[list[int]] = []
    for each in sorted(set(numbers)):
        if found and each == found[-1][1] + 1:
            found[-1][1] = each
        else:
            found.append([each, each])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)
