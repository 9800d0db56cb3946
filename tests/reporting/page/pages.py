"""Reports of models, for tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from microfold import target
from microfold.compiler import compile_file, compile_graph
from microfold.ir.graph import Graph
from microfold.options import Options
from microfold.reporting.data import build_report
from microfold.reporting.profile import DeviceProfile
from microfold.reporting.schema import (
    BuildReport,
    ReportedChange,
    ReportedLibrary,
    ReportedRelaxations,
    WhatIfBuild,
)

ROOT = Path(__file__).resolve().parents[3]
MADE = ROOT / "tests" / "models" / "made"
CNN = MADE / "cnn_int8.tflite"
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


@cache
def report_of(path: Path, core: str = "cortex-m4", optimize: str = "balanced") -> BuildReport:
    """Of a file; no compiler measures the code."""
    program = compile_file(path, target.load(core), Options(optimize=optimize))
    return build_report(program, None)


def report_of_graph(graph: Graph, core: str = "cortex-m4") -> BuildReport:
    return build_report(compile_graph(graph, target.load(core)), None)


def report_saying(text: str) -> BuildReport:
    """A report in which every text that a model or a file can bring is this."""

    def changed(value: Any) -> Any:
        if isinstance(value, str):
            return text
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        if isinstance(value, Struct):
            kept = {"kind", "optimize", "dtype"}
            return replace(value, **{k: changed(v) for k, v in asdict(value).items() if k not in kept})
        return value

    report = replace(
        report_of(MADE / "stream_int8.tflite"),
        pruned=report_of(ROOT / "examples" / "sine" / "sine.tflite").pruned,
        libraries=(ReportedLibrary("", (), ("",)),),
        relaxed=ReportedRelaxations((ReportedChange("", ""),), 1, ()),
    )
    return changed(report)


def uneven_profile(report: BuildReport) -> DeviceProfile:
    """Every third layer takes twice what is estimated; the last one was not measured."""
    layers = list(enumerate(report.layers))[:-1]
    return DeviceProfile(
        "device.json", {i: (layer.estimated_cycles or 1) * (1 + (i % 3 == 0)) for i, layer in layers}
    )


# Two targets: one where every level is on the front, one where a level is beaten, and cannot be compiled.
ALTERNATIVES = (
    WhatIfBuild("cortex-m4", "size", None, 1000, 5000, True, 90_000, 120_000),
    WhatIfBuild("cortex-m4", "balanced", None, 1200, 7000, True, 60_000, 80_000),
    WhatIfBuild("cortex-m4", "speed", None, 1300, 9000, True, 50_000, 70_000),
    WhatIfBuild("cortex-m0plus", "size", None, 1100, 6000, True, 300_000, None),
    WhatIfBuild("cortex-m0plus", "balanced", None, 1100, 6500, True, 300_000, None),
    WhatIfBuild("cortex-m0plus", "speed", "no kernel computes it", None, None, False, None, None),
)
