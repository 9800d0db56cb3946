"""What a build is, as data: `report.json`."""

from __future__ import annotations

from typing import Any

from microfold.analysis.certificate import Certificate
from microfold.analysis.interval import channel_count
from microfold.analysis.product_sum import Accumulator
from microfold.analysis.ranges import Ranges, analyze
from microfold.ir.types import DType, TensorType
from microfold.measure import Measurement
from microfold.program import Buffer, Program
from microfold.simulate.run import SimulationResult
from microfold.verify import Verification

Report = dict[str, Any]


def build_report(program: Program, measurement: Measurement | None) -> Report:
    """The report of a compilation; sizes in bytes, null where no compiler could measure them.

    Deterministic for one compiler: no dates, no paths.
    """
    ranges = analyze(program.graph)
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
            "arena_without_overlap": program.arena.lower_bound,
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
                "accumulator_bits": _bits(ranges.accumulators.get(layer.node)),
            }
            for layer in program.layers
        ],
        "accumulators": _overflow_proof(program, ranges),
        "pruned": [_pruned(certificate) for certificate in program.pruned],
    }


def _bits(accumulator: Accumulator | None) -> int | None:
    """Width of the signed integer that holds every partial sum, in whatever order it is summed."""
    return int(accumulator.partial.max()).bit_length() + 1 if accumulator is not None else None


def _overflow_proof(program: Program, ranges: Ranges) -> Report:
    """Which sums are proved to stay in their type: 64 bits for int16 product sums, 32 for all others."""
    bits: dict[str, int] = {}
    unproved: list[str] = []
    for layer in program.layers:
        width = _bits(ranges.accumulators.get(layer.node))
        x = layer.node.operands[0].type if layer.node.operands else None
        if width is None:
            if layer.macs and x is not None and not x.dtype.is_float:
                unproved.append(layer.name)
            continue
        bits[layer.name] = width
        if width > (64 if layer.macs and x is not None and x.dtype is DType.INT16 else 32):
            unproved.append(layer.name)
    largest = max(bits.values(), default=0)
    return {"proved": not unproved, "largest_bits": largest, "unproved_layers": unproved}


def _pruned(certificate: Certificate) -> Report:
    """What was removed from a graph, per value of the graph before; channels are its last axis."""
    return {
        "graph": certificate.graph_name,
        "macs_before": certificate.macs[0],
        "macs_after": certificate.macs[1],
        "channels": certificate.channels,
        "values": [
            {
                "op": pruned.layer,
                "tensor": pruned.value.name,
                "channels": channel_count(pruned.value.type),
                "removed": [
                    {"reason": reason.name.lower(), "low": low, "high": high, "channels": list(channels)}
                    for (reason, low, high), channels in pruned.groups()
                ],
            }
            for pruned in certificate.values
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
