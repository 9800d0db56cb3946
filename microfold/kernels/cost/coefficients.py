"""Instructions and cycles of the parts of kernels: one data file for each measured core.

The files are in the folder ``data``, with one table for each kernel::

    [s8_mul__c]
    source = "measured"              # or "by hand": counted in the code, and checked against measurements
    samples = 24                     # number of layers; every third one was held back from the fit
    error = 0.031                    # median relative error for the layers that were held back
    cycles_error = 0.042             # the same for cycles
    note = "…"                       # reason for an unusually large error
    terms.element = [13.9, 18.2]     # instructions, cycles
    alone.element = [11.2, 14.0]     # if a single layer calls the function

Cycles come from the core's timing table, or from the model of its pipeline, for the instructions that were
executed. A target reads the files in the order of `distance`, and uses the first row of each kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from microfold.kernels.cost.tables import Tables, read_file

FOLDER = Path(__file__).parent / "data"
# Number of other features that count as much as a floating-point unit, for float kernels.
FPU_DISTANCE = 10
# Number of other features that count as much as vectors, for all kernels. Dual issue matters less.
VECTOR_DISTANCE = 3


class CostRow(Struct, frozen=True):
    """Measured cost of a kernel on one core.

    Attributes:
        core: name of the core.
        source: ``measured`` or ``by hand``.
        samples: number of measured layers.
        error: median relative deviation of estimated instructions from layers that were held back; None if no
            layers were measured.
        cycles_error: median relative deviation of estimated cycles; None also if it was not recorded.
        note: reason for an error above `LARGEST_ERROR`.
        instructions: instructions of one run of each part of `Kernel.terms`.
        cycles: cycles of one run of each part.
        alone: instructions of each part if a single layer calls the function; empty if they do not differ.
        alone_cycles: cycles of each part if a single layer calls the function; empty also if only its
            instructions are known, whose cycles are then assumed to be as in `cycles`.
    """

    core: str
    source: str
    samples: int
    error: float | None
    cycles_error: float | None
    note: str
    instructions: Mapping[str, float]
    cycles: Mapping[str, float]
    alone: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    alone_cycles: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


# Rows with a larger error need a note.
LARGEST_ERROR = 0.1


class Core(Struct, frozen=True):
    """Contents of one data file.

    Attributes:
        name: name of the target.
        features: features of the target, closed under implication.
        provenance: description of the measurement, for readers.
        cycles_source: source of the cycles, as the target describes it.
        cycles_per_instruction: median over its kernels, for kernels that estimate only instructions.
        rows: rows by kernel name.
    """

    name: str
    features: frozenset[str]
    provenance: str
    cycles_source: str
    cycles_per_instruction: float
    rows: Mapping[str, CostRow]


@cache
def cores() -> tuple[Core, ...]:
    """Return all data files, sorted by name."""
    return tuple(read_core(path) for path in sorted(FOLDER.glob("*.toml")))


def read_core(path: Path) -> Core:
    """Return the contents of one data file, whose head comes first."""
    head, rows = read_file(path)
    return Core(
        path.stem,
        frozenset[str](head["features"]),
        head["provenance"],
        head["cycles_source"],
        head["cycles_per_instruction"],
        Tables(rows, lambda table: _row(path.stem, table)),
    )


def _row(core: str, table: Mapping[str, Any]) -> CostRow:
    pairs: Mapping[str, list[float]] = table.get("terms", {})
    alone: Mapping[str, float | list[float]] = table.get("alone", {})
    return CostRow(
        core,
        table["source"],
        table.get("samples", 0),
        table.get("error"),
        table.get("cycles_error"),
        table.get("note", ""),
        {name: pair[0] for name, pair in pairs.items()},
        {name: pair[1] for name, pair in pairs.items()},
        {name: known[0] if isinstance(known, list) else known for name, known in alone.items()},
        {name: known[1] for name, known in alone.items() if isinstance(known, list)},
    )


def distance(features: frozenset[str], core: Core, floats: bool) -> int:
    """Return the distance of a measured core from a target: the number of features that only one of them has.

    A floating-point unit counts more for float kernels, and not at all for others. A target without Thumb is
    the machine that compiles; its C code is assumed to cost as much as on Armv7-M.
    """
    if not features & {"thumb1", "thumb2"}:
        features |= {"thumb2"}
    other = features ^ core.features
    floating = {"fpu", "mve_fp"}
    fpu = FPU_DISTANCE if floats and "fpu" in other else 0
    return len(other - floating - {"mve"}) + (VECTOR_DISTANCE if "mve" in other else 0) + fpu


@cache
def chain(features: frozenset[str], floats: bool) -> tuple[Core, ...]:
    """Return the data files for a target, the closest core first."""
    return tuple(sorted(cores(), key=lambda core: (distance(features, core, floats), core.name)))


@cache
def find_row(kernel: str, features: frozenset[str]) -> CostRow | None:
    """Return the row of the closest core that has one; None if none has one.

    Args:
        kernel: name of the kernel, which shows whether it computes floats.
        features: features of the target, closed under implication.
    """
    files = chain(features, kernel.startswith("f"))
    return next((core.rows[kernel] for core in files if kernel in core.rows), None)


def closest(features: frozenset[str]) -> Core:
    """Return the measured core that is closest to a target."""
    return chain(features, False)[0]
