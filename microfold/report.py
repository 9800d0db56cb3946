"""What a build is, as data: `report.json`."""

from __future__ import annotations

from typing import Any

from microfold.ir.types import TensorType
from microfold.measure import Measurement
from microfold.program import Buffer, Program
from microfold.simulate.run import SimulationResult
from microfold.verify import Verification

Report = dict[str, Any]


def build_report(program: Program, measurement: Measurement | None) -> Report:
    """The report of a compilation; sizes in bytes, null where no compiler could measure them.

    Deterministic for one compiler: no dates, no paths.
    """
    return {
        "model": program.name,
        "target": program.target.name,
        "options": {
            "optimize": program.options.optimize,
            "io": program.options.io,
            "single_file": program.options.single_file,
            "weights_section": program.options.weights_section,
        },
        "macs": program.macs,
        "ram": {
            "arena": program.arena.size,
            "arena_lower_bound": program.arena.lower_bound,
            "state": program.state_size,
            "stack": measurement.stack if measurement else None,
        },
        "flash": {"weights": program.weight_bytes, "code": measurement.code if measurement else None},
        "inputs": [_port(buffer) for buffer in program.inputs],
        "outputs": [_port(buffer) for buffer in program.outputs],
        "layers": [
            {
                "name": layer.name,
                "tensor": layer.label,
                "op": layer.node.op.name,
                "fused": [step.op.name for step in layer.node.epilogue],
                "kernel": layer.kernel.name,
                "macs": layer.macs,
                "scratch": layer.call.scratch,
                "weights": sum(c.array.nbytes for c in layer.call.constants.values()),
                "output": describe_type(layer.outputs[0].type),
                "output_offset": layer.outputs[0].offset,
            }
            for layer in program.layers
        ],
    }


def describe_type(t: TensorType) -> dict[str, Any]:
    """A tensor type as plain data."""
    found: dict[str, Any] = {"dtype": t.dtype.value, "shape": list(t.shape)}
    if t.quant is not None:
        found |= {"scales": list(t.quant.scales), "zero_points": list(t.quant.zero_points)}
        if t.quant.axis is not None:
            found["axis"] = t.quant.axis
    return found


def _port(buffer: Buffer) -> dict[str, Any]:
    return {"name": buffer.value.name, **describe_type(buffer.type), "bytes": buffer.type.nbytes}


def bench_report(program: Program, result: SimulationResult) -> Report:
    """`build_report` with what the simulated core measured in the last call."""
    memory = result.memory
    report = build_report(program, Measurement(memory.model.flash - program.weight_bytes, memory.stack))
    total = result.instructions[-1]
    report["instructions"] = total
    report["instructions_per_mac"] = round(total / program.macs, 4) if program.macs else None
    for layer, count in zip(report["layers"], result.layer_instructions[-1], strict=True):
        layer["instructions"] = count
    report["image"] = {"flash": memory.flash, "ram": memory.ram}
    return report


def verify_report(program: Program, result: Verification) -> Report:
    """The outcome of a verification."""
    differences = [
        {
            "layer": d.layer,
            "name": d.name,
            "input_set": d.call,
            "elements": d.count,
            "largest": d.largest,
        }
        for d in result.differences
    ]
    return {
        "model": program.name,
        "target": program.target.name,
        "exact": result.exact,
        "tensors": result.tensors,
        "inputs": result.inputs,
        "first_difference": differences[0] if differences else None,
        "differences": differences,
    }
