"""Data of the comparison between a device's trace and the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from microfold.codegen.tensor_trace import TracedTensor
from microfold.program import Program
from microfold.verification.tensor_trace.diagnosis import Elements, Fault, RunResult, context_offset
from microfold.verification.tensor_trace.dump import Dump
from microfold.verification.tensor_trace.profile import TraceProfile


class TraceComparison(Struct, frozen=True):
    """Result of the comparison of a trace with the reference.

    Attributes:
        build: build id.
        profile: ticks of the layers; None if the firmware has no clock for taps.
    """

    program: Program
    build: int
    dump: Dump
    runs: Sequence[RunResult]
    profile: TraceProfile | None

    @property
    def equal(self) -> bool:
        """Whether at least one tensor was compared, and no fault was found."""
        found = any(result.faults for result in self.runs)
        return not found and any(result.tensors for result in self.runs)


def diff_report(comparison: TraceComparison) -> dict[str, Any]:
    """Return the comparison as plain data."""
    program, parser = comparison.program, comparison.dump.parser
    runs = [_run_report(program, result) for result in comparison.runs]
    return {
        "model": program.name,
        "target": program.target.name,
        "build_id": build_text(comparison.build),
        "equal": comparison.equal,
        "first_fault": next((fault for run in runs for fault in run["faults"]), None),
        "runs": runs,
        "dump": {
            "bytes": parser.total,
            "records": sum(build.records for build in comparison.dump.builds.values()),
            "other_bytes": parser.total - parser.whole,
            "damaged": [
                {
                    "offset": damage.offset,
                    "reason": damage.reason,
                    "role": damage.role.name.lower(),
                    "layer": damage.layer,
                    "run": damage.run,
                }
                for damage in parser.damaged
            ],
            "other_builds": [
                {"build_id": build_text(build), "records": found.records}
                for build, found in comparison.dump.builds.items()
                if build != comparison.build
            ],
        },
        "profile": _profile_report(program, comparison.profile),
    }


def build_text(build: int) -> str:
    """Return a build id in the form that the files of the build contain."""
    return f"0x{build:08x}u"


def _run_report(program: Program, result: RunResult) -> dict[str, Any]:
    return {
        "run": result.run.number,
        "ended": result.run.ended,
        "tensors": result.tensors,
        "missing": [_tap_report(tap) for tap in result.missing],
        "unchecked": [{"layer": layer, "reason": reason} for layer, reason in result.unchecked.items()],
        "faults": [_fault_report(program, result.run.number, fault) for fault in result.faults],
    }


def _tap_report(tap: TracedTensor) -> dict[str, Any]:
    return {
        "role": tap.role.name.lower(),
        "layer": tap.layer,
        "index": tap.index,
        "tensor": tap.buffer.value.name,
    }


def _fault_report(program: Program, run: int, fault: Fault) -> dict[str, Any]:
    return {
        "kind": fault.kind,
        "run": run,
        "role": fault.role.name.lower(),
        "layer": fault.layer,
        "layer_name": _layer_name(program, fault.layer),
        "tensor": fault.tensor.name,
        "written_by": fault.written_by,
        "written_by_name": _layer_name(program, fault.written_by),
        "region": fault.buffer.region,
        "context_offset": context_offset(program, fault),
        "elements": _elements_report(fault.elements),
    }


def _layer_name(program: Program, layer: int | None) -> str | None:
    return program.layers[layer].name if layer is not None else None


def _elements_report(elements: Elements | None) -> dict[str, Any] | None:
    if elements is None:
        return None
    return {
        "count": elements.count,
        "size": elements.size,
        "first": list(elements.first),
        "device": elements.actual,
        "expected": elements.expected,
        "largest": elements.largest,
    }


def _profile_report(program: Program, profile: TraceProfile | None) -> dict[str, Any] | None:
    if profile is None:
        return None
    return {
        "runs": profile.runs,
        "ticks": round(profile.total),
        "layers": [
            {
                "name": layer.name,
                "kernel": layer.kernel.name,
                "ticks": None if ticks.mean is None else round(ticks.mean),
                "least": ticks.least,
                "most": ticks.most,
                "share": ticks.share,
                "estimated_instructions": layer.estimated_instructions,
            }
            for layer, ticks in zip(program.layers, profile.layers, strict=True)
        ],
    }
