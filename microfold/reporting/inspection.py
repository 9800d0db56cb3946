"""Contents of a `.tflite` file, supported or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from microfold.frontend.tflite import import_model, read_file, survey
from microfold.ir.node import Value
from microfold.ir.types import Quant
from microfold.pipeline import sliding_axes


def inspect_model(path: Path, signature: str | None = None) -> dict[str, Any]:
    """Return operators, inputs, outputs and problems of a model as plain data, even if it is unsupported.

    Args:
        signature: signature whose subgraph is inspected; None: the first subgraph.

    Raises:
        ModelFormatError: the file is malformed.
    """
    data = read_file(path)
    found = survey(data, path.name, signature)
    operators = [
        {
            "operator": operator.name,
            "tensor": operator.tensor,
            "inputs": [str(t) for t in operator.inputs],
            "outputs": [str(t) for t in operator.outputs],
            "macs": sum(node.macs() for node in operator.nodes),
            "problem": operator.problem.reason if operator.problem else None,
        }
        for operator in found.operators
    ]
    return {
        "model": path.stem,
        "bytes": len(data),
        "macs": sum(node.macs() for operator in found.operators for node in operator.nodes),
        "inputs": [_port(value) for value in found.inputs],
        "outputs": [_port(value) for value in found.outputs],
        "operators": operators,
        "problems": [str(problem) for problem in found.problems],
        "sliding": [] if found.problems else _sliding(data, path, signature),
    }


def _sliding(data: bytes, path: Path, signature: str | None) -> list[dict[str, Any]]:
    """Return the input axes along which a run with only new frames needs fewer MACs."""
    graph = import_model(data, path.stem, path.name, signature=signature)
    return [
        {"axis": s.axis, "frames": s.frames, "step": s.step, "macs": s.macs}
        for s in sliding_axes(graph)
        if s.macs < s.window_macs
    ]


def _port(value: Value) -> dict[str, str]:
    return {
        "name": value.name,
        "type": str(value.type),
        "quantization": describe_quant(value.type.quant),
    }


def describe_quant(quant: Quant | None) -> str:
    """Return a short text for a quantisation."""
    if quant is None:
        return "none"
    if quant.axis is not None:
        return f"{len(quant.scales)} scales along axis {quant.axis}"
    return f"scale {quant.scale:.6g}, zero point {quant.zero_point}"
