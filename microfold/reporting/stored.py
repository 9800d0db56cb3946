"""Reader of stored build reports, `<model>_report.json`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from microfold.errors import InputError
from microfold.reporting.schema import REPORT_VERSION, BuildReport
from microfold.support.decode import decode, read_json, refuse, shown


def load_report(path: Path) -> BuildReport:
    """Return the report that build or bench has written to a file.

    Raises:
        InputError: the file is not a report, or has a version that cannot be read.
    """
    return read_report(read_json(path), str(path))


def read_report(data: Any, source: str) -> BuildReport:
    """Return a report from plain data.

    Args:
        source: name of the data in error messages.

    Raises:
        InputError: the data is not a report, or has a version that cannot be read.
    """
    version = data.get("report_version") if isinstance(data, dict) else None
    if version != REPORT_VERSION:
        raise InputError(
            f"{source} must be a report of `microfold build` or `bench --json`, with report_version "
            f"{REPORT_VERSION}; got {'none' if version is None else shown(version)}: "
            "build the model again"
        )
    report = decode(BuildReport, data, source)
    refuse(source, list(_contradictions(report)))
    return report


def _contradictions(report: BuildReport) -> Iterator[str]:
    """Yield faults of indices that are out of range."""
    counts = {"input": len(report.inputs), "output": len(report.outputs), "layer": len(report.layers)}
    for i, edge in enumerate(report.edges):
        for name, end in (("from", edge.source), ("to", edge.reader)):
            if end.index >= counts.get(end.kind, len(report.edges)):
                yield f"$.edges[{i}].{name} must be an existing end; it is {end.kind} {end.index}"
    for i, block in enumerate(report.blocks):
        if not block.first_layer <= block.last_layer < len(report.layers):
            yield (
                f"$.blocks[{i}] must be alive during existing layers; "
                f"it is from {block.first_layer} to {block.last_layer}"
            )
    for i, value in enumerate(v for pruned in report.pruned for v in pruned.values):
        if any(c >= value.channels for removed in value.removed for c in removed.channels):
            yield f"removed channels of pruned value {i} must be below its channel count, {value.channels}"
