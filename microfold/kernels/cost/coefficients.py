"""Instructions and cycles of the parts of kernels: one data file for each core that was measured.

Files lie in ``data``, one table for each kernel::

    [s8_mul__c]
    source = "measured"              # or "by hand": counted in the code, and compared with what was measured
    samples = 24                     # layers, of which every third one was held back from the fit
    error = 0.031                    # median of those held back: by how much estimates are off
    cycles_error = 0.042             # the same of cycles
    note = "…"                       # why the error is larger than others are, if it is
    terms.element = [13.9, 18.2]     # instructions, cycles
    alone.element = [11.2, 14.0]     # where compilers make the function for its only layer

Cycles are those of the core's timing table, or of the model of its pipeline, for what was executed. A target
has the files in the order of `distance`, and of each kernel the first row found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from microfold.kernels.cost.tables import Tables, read_file
from microfold.support.frozen import frozen

FOLDER = Path(__file__).parent / "data"
# Of kernels of floats, how many other features a floating-point unit is worth.
FPU_DISTANCE = 10
# The same of vectors, of all kernels: how instructions are issued together matters less.
VECTOR_DISTANCE = 3


@frozen
class Row:
    """What a core was found to take for a kernel.

    Attributes:
        core: which core.
        source: ``measured`` or ``by hand``.
        samples: how many layers were measured.
        error: median deviation of estimates from layers that were held back, as a part of these; None if
            none were measured.
        cycles_error: the same of cycles; None also where that was not recorded.
        note: why it is larger than `LARGEST_ERROR`, if it is.
        instructions: of each of `Kernel.terms`.
        cycles: likewise.
        alone: instructions where a function is made for its only layer; empty: the same.
        alone_cycles: likewise; empty also where only instructions are known: they take as long as elsewhere.
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


# From which error on a row needs a note.
LARGEST_ERROR = 0.1


@frozen
class Core:
    """A data file.

    Attributes:
        name: a target's.
        features: that target's, closed under implication.
        provenance: how it was measured, for people.
        cycles_source: what its cycles are from, as the target says.
        cycles_per_instruction: the median of its kernels, for those that only estimate instructions.
        rows: by kernel.
    """

    name: str
    features: frozenset[str]
    provenance: str
    cycles_source: str
    cycles_per_instruction: float
    rows: Mapping[str, Row]


@cache
def cores() -> tuple[Core, ...]:
    """All data files, by name."""
    return tuple(read_core(path) for path in sorted(FOLDER.glob("*.toml")))


def read_core(path: Path) -> Core:
    """One data file, whose head comes first."""
    head, rows = read_file(path)
    return Core(
        path.stem,
        frozenset[str](head["features"]),
        head["provenance"],
        head["cycles_source"],
        head["cycles_per_instruction"],
        Tables(rows, lambda table: _row(path.stem, table)),
    )


def _row(core: str, table: Mapping[str, Any]) -> Row:
    pairs: Mapping[str, list[float]] = table.get("terms", {})
    alone: Mapping[str, float | list[float]] = table.get("alone", {})
    return Row(
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
    """How far a measured core is from a target: the features that one of both has and the other lacks.

    Without a floating-point unit, floats are another matter; elsewhere it does not count. Where there is no
    Thumb, on the machine that compiles, C is taken to be as on Armv7-M.
    """
    if not features & {"thumb1", "thumb2"}:
        features |= {"thumb2"}
    other = features ^ core.features
    floating = {"fpu", "mve_fp"}
    fpu = FPU_DISTANCE if floats and "fpu" in other else 0
    return len(other - floating - {"mve"}) + (VECTOR_DISTANCE if "mve" in other else 0) + fpu


@cache
def chain(features: frozenset[str], floats: bool) -> tuple[Core, ...]:
    """The data files for a target, the closest core first."""
    return tuple(sorted(cores(), key=lambda core: (distance(features, core, floats), core.name)))


@cache
def find_row(kernel: str, features: frozenset[str]) -> Row | None:
    """The row of the closest core that has one.

    Args:
        kernel: its name, which tells whether it computes floats.
        features: of the target, closed under implication.
    """
    files = chain(features, kernel.startswith("f"))
    return next((core.rows[kernel] for core in files if kernel in core.rows), None)


def closest(features: frozenset[str]) -> Core:
    """The core that a target is most like."""
    return chain(features, False)[0]
