"""Data files of `microfold.kernels.cost.coefficients`, written."""

from __future__ import annotations

from collections.abc import Iterable

from microfold.kernels.cost.coefficients import Core, CostRow

HEAD = """\
# What the parts of kernels take on this core, see microfold/kernels/cost/coefficients.py.
# Written by `python -m tests.kernels.calibration`, but for rows whose source is "by hand".
"""


def number(value: float) -> str:
    """Four significant digits."""
    rounded = float(f"{value:.4g}")
    return str(int(rounded)) if rounded == int(rounded) else repr(rounded)


def write_core(core: Core) -> str:
    """A data file."""
    lines = [HEAD, "[core]", f'provenance = "{core.provenance}"']
    features = ", ".join(f'"{name}"' for name in sorted(core.features))
    lines.append(f"features = [{features}]")
    lines.append(f'cycles_source = "{core.cycles_source}"')
    lines.append(f"cycles_per_instruction = {number(core.cycles_per_instruction)}")
    for name, row in sorted(core.rows.items()):
        lines += ["", f"[{name}]", *_row(row)]
    return "\n".join(lines) + "\n"


def _row(row: CostRow) -> Iterable[str]:
    yield f'source = "{row.source}"'
    if row.samples:
        yield f"samples = {row.samples}"
    if row.error is not None:
        yield f"error = {row.error:.3f}"
    if row.cycles_error is not None:
        yield f"cycles_error = {row.cycles_error:.3f}"
    if row.note:
        yield f'note = "{row.note}"'
    for name, instructions in row.instructions.items():
        yield f"terms.{name} = [{number(instructions)}, {number(row.cycles[name])}]"
    for name, instructions in row.alone.items():
        yield f"alone.{name} = {_alone(instructions, row.alone_cycles.get(name))}"


def _alone(instructions: float, cycles: float | None) -> str:
    return number(instructions) if cycles is None else f"[{number(instructions)}, {number(cycles)}]"
