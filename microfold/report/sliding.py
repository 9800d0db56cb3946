"""Report data of sliding windows: new frames of a run, and kept results of earlier frames."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from microfold.program import Program


def sliding_report(program: Program) -> dict[str, Any] | None:
    """Return the results that a run reuses from earlier runs, or None if a run reads the whole input."""
    sliding = program.sliding
    if sliding is None:
        return None
    return {
        "axis": sliding.axis,
        "frames": sliding.frames,
        "step": sliding.step,
        "warmup_runs": sliding.warmup_runs,
        "macs": sliding.macs,
        "window_macs": sliding.window_macs,
        "kept": [asdict(kept) for kept in sliding.kept],
    }
