"""Profile of a device's layers, from the ticks in their trace records."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from microfold.codegen.tensor_trace import Role
from microfold.program import Program
from microfold.verification.tensor_trace.dump import RecordedRun


class LayerTicks(Struct, frozen=True):
    """Ticks of a layer over several runs. All attributes are None if the layer has no records.

    Attributes:
        mean, least, most: mean, minimum and maximum ticks.
        share: fraction of the sum of all layers' means.
    """

    mean: float | None
    least: int | None
    most: int | None
    share: float | None


class TraceProfile(Struct, frozen=True):
    """Ticks of all layers, in order.

    Attributes:
        total: sum of the layers' means.
    """

    runs: int
    total: float
    layers: Sequence[LayerTicks]


def profile(program: Program, runs: Sequence[RecordedRun]) -> TraceProfile | None:
    """Return the profile of several runs; None if the device has no clock for the trace."""
    ticks = [_ticks(layer.index, runs) for layer in program.layers]
    means = [sum(each) / len(each) if each else None for each in ticks]
    total = sum(mean for mean in means if mean is not None)
    if not total:
        return None
    layers = [
        LayerTicks(mean, min(each, default=None), max(each, default=None), _share(mean, total))
        for each, mean in zip(ticks, means, strict=True)
    ]
    return TraceProfile(len(runs), total, layers)


def _ticks(layer: int, runs: Sequence[RecordedRun]) -> list[int]:
    """Return the ticks of a layer in all runs with its records. All outputs of a layer have equal ticks."""
    found: list[int] = []
    for run in runs:
        records = [r for r in run.records.values() if r.role is Role.LAYER_OUTPUT and r.layer == layer]
        found += [record.ticks for record in records[:1]]
    return found


def _share(mean: float | None, total: float) -> float | None:
    return mean / total if mean is not None else None
