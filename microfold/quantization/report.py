"""Report of `microfold quantize` as plain data, for ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from microfold import __version__

if TYPE_CHECKING:
    from microfold.quantization.session import Quantisation, SchemeResult
    from microfold.reporting.what_if import WhatIfBuild

# Version of the fields. Removing a field or changing its meaning increments it.
QUANTIZE_VERSION = 1


def quantize_report(found: Quantisation) -> dict[str, Any]:
    """Return the report of a quantisation, see docs/quantize.md."""
    return {
        "quantize_version": QUANTIZE_VERSION,
        "microfold_version": __version__,
        "model": found.model,
        "target": found.target,
        "samples": found.count,
        "calibration": len(found.split.calibration),
        "held_back": len(found.split.held_back),
        "notes": list(found.notes),
        "float": {"bytes": found.size, "accuracy": found.accuracy, **_figures(found.figures)},
        "schemes": [_scheme(result) for result in found.results],
    }


def _scheme(result: SchemeResult) -> dict[str, Any]:
    return {
        "scheme": result.scheme.name,
        "problem": result.problem or None,
        "bytes": len(result.data) or None,
        "sha256": result.sha256 if result.data else None,
        "exact": result.verified.exact if result.verified is not None else None,
        "not_exact": (result.verified.reason or None) if result.verified is not None else None,
        **_figures(result.figures),
        "outputs": result.outputs,
        "layers": result.layers,
        "advice": list(result.advice),
    }


def _figures(found: WhatIfBuild | None) -> dict[str, Any]:
    keys = ("ram", "flash", "measured", "estimated_instructions", "estimated_cycles")
    return {key: getattr(found, key) if found is not None else None for key in keys}
