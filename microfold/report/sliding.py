"""What a program says of the frames that it is handed, and of what it keeps of earlier ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from microfold.program import Program


def sliding_report(program: Program) -> dict[str, Any] | None:
    """What a run reuses of earlier ones; None: it takes the whole input."""
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
