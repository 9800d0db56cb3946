"""Text output of `microfold quantize`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from microfold.quantization.wording import (
    decibels_text,
    layer_name,
    lowest_agreement,
    lowest_snr,
    percent_text,
    verification_text,
)
from microfold.reporting.console import console
from microfold.reporting.tables import Table, TableColumn, number
from microfold.reporting.terminal.figures import number_text, print_cycles_note

if TYPE_CHECKING:
    from microfold.quantization.session import Quantisation, SchemeResult
    from microfold.reporting.what_if import WhatIfBuild

# Characters of a problem.
_LONGEST = 300


def print_quantisation(found: Quantisation, written: Sequence[Path | None]) -> None:
    """Print the layers of a single scheme, a row for each scheme, and advice."""
    single = found.results[0] if len(found.results) == 1 else None
    if single is not None and single.layers:
        _print_layers(single)
        console.print()
    _print_schemes(found)
    for note in found.notes:
        console.print(f"note: {note}")
    for result in found.results:
        prefix = f"{result.scheme.name}: "
        if result.problem:
            console.print(f"{prefix}{_cut(result.problem)}")
        elif result.verified is not None and not result.verified.exact:
            word = "not verified" if result.verified.exact is None else "NOT exact"
            console.print(f"{prefix}{word}: {_cut(result.verified.reason)}")
        for line in result.advice:
            console.print(f"{prefix}{line}")
    for file in written:
        if file is not None:
            console.print(f"written: {file}")


def _cut(text: str) -> str:
    """Return a message in one line of limited length: it can name every kernel of a layer."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}… (--json has all of it)"


def _print_layers(result: SchemeResult) -> None:
    columns = (number("#"), TableColumn("layer"), TableColumn("operator", rank=2), TableColumn("type"))
    columns += (number("SNR dB"), number("alone dB"), number("saturated %"))
    table = Table(f"{result.scheme.name}: float values against quantised ones", columns)
    for layer in result.layers:
        losses = (decibels_text(layer.snr), decibels_text(layer.own_snr), percent_text(layer.saturated))
        table.add(str(layer.number), layer_name(layer), layer.operator, layer.type, *losses)
    console.show(table)
    console.print("alone: the layer with the float model's values as inputs, rounded to their types")


def _print_schemes(found: Quantisation) -> None:
    size = len(found.split.held_back)
    columns = (TableColumn("scheme"), number("file"), number("SNR dB"), number("same answer %"))
    columns += (number("accuracy %"),) if found.accuracy is not None else ()
    columns += (number("RAM"), number("flash"), number("cycles"), TableColumn("C code", rank=1))
    calibration = len(found.split.calibration)
    title = f"{found.model} for {found.target}: {size} held-back samples, {calibration} for calibration"
    table = Table(title, columns)
    accuracy = (percent_text(found.accuracy),) if found.accuracy is not None else ()
    table.add("float32", number_text(found.size), "", "", *accuracy, *_figures(found.figures), "")
    for result in found.results:
        outputs = result.outputs
        snr = decibels_text(lowest_snr(outputs)) if outputs else ""
        agreement = percent_text(lowest_agreement(outputs))
        row = [result.scheme.name, number_text(len(result.data)), snr, agreement]
        if found.accuracy is not None:
            row.append(percent_text(outputs[0].accuracy if outputs else None))
        table.add(*row, *_figures(result.figures), verification_text(result))
    console.show(table)
    if any(len(result.outputs) > 1 for result in found.results):
        console.print("SNR and same answer: the lowest of all outputs; --json has each")
    measured = found.figures.measured
    text = (
        "RAM: arena, state and stack; flash: constants and code"
        if measured
        else "RAM: arena and state; flash: constants"
    )
    console.print(f"file, RAM and flash in bytes. {text}")
    if found.cycles_error is not None:
        print_cycles_note({found.target: found.cycles_error})


def _figures(found: WhatIfBuild | None) -> list[str]:
    keys = ("ram", "flash", "estimated_cycles")
    return [number_text(getattr(found, key) if found is not None else None, unknown="") for key in keys]
