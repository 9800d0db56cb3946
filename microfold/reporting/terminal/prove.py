"""Text output of `microfold prove`."""

from __future__ import annotations

from microfold.prove.proof import ASSUMPTIONS, LayerProof, ModelProof
from microfold.reporting.console import console
from microfold.reporting.tables import Table, TableColumn, number


def print_proof(proof: ModelProof) -> None:
    """Print the verdict of each layer, the alarms, and the assumptions."""
    title = f"{proof.model} for {proof.target}, by {proof.tool}"
    columns = (
        number("#"),
        TableColumn("layer", rank=1),
        TableColumn("kernel"),
        TableColumn("verdict"),
        number("s"),
    )
    table = Table(title, columns)
    for layer in proof.layers:
        table.add(
            str(layer.layer), layer.name, layer.kernel, _verdict(layer), f"{layer.analysis.seconds:.1f}"
        )
    console.show(table)
    for alarm in proof.alarms:
        place = f"{alarm.file}:{alarm.line}"
        console.print(
            f"{place}: {alarm.function}: {alarm.kind}: not proved: {alarm.property}", soft_wrap=True
        )
    for layer in proof.layers:
        if layer.analysis.problem:
            console.print(f"layer {layer.layer} ({layer.name}): {layer.analysis.problem}", soft_wrap=True)
    if proof.proved:
        console.print("No input and no state leads to undefined behaviour (proved), provided that")
        for assumption in ASSUMPTIONS:
            console.print(f"- {assumption}")
    else:
        left = sum(not layer.proved for layer in proof.layers)
        console.print(f"{left} of {len(proof.layers)} layers are not proved")


def _verdict(layer: LayerProof) -> str:
    if layer.proved:
        return "proved"
    if layer.analysis.problem:
        return "not finished"
    return f"{len(layer.analysis.alarms)} alarms"
