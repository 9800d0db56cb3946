"""Frama-C's Eva: one analysis of C, and the properties that it leaves unproved.

Eva is an abstract interpreter: https://frama-c.com/fc-plugins/eva.html. If it reports no alarm, no
execution has undefined behaviour of the kinds that it checks: accesses out of bounds or of uninitialised
memory, overflows of signed numbers, wrong shifts, divisions by zero, conversions of floats out of range,
dangling pointers.
"""

from __future__ import annotations

import csv
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from microfold.errors import ToolError
from microfold.support.tools import ToolTimeout, run_tool

FRAMA_C = "frama-c"
INSTALL = "apt install frama-c-base, or opam install frama-c: https://frama-c.com/html/get-frama-c.html"
# The compiler and word sizes that the analysis assumes, by the number of bits of a pointer.
MACHINES = {64: "gcc_x86_64", 32: "gcc_x86_32"}
# Iterations of a loop that are analysed one by one. Loops of kernels are shorter; a longer one ends the
# analysis by its time limit.
_UNROLLED = 1 << 20
_PROPERTIES = "properties.csv"
_VERSION_SECONDS = 20.0


class Alarm(Struct, frozen=True):
    """Property that the analysis has not proved.

    Attributes:
        file, line, function: place in the C.
        kind: kind of undefined behaviour, as Frama-C names it, e.g. ``signed_overflow``.
        property: condition, in ACSL.
        status: ``Unknown``, or ``Invalid`` if every execution that gets there breaks it.
    """

    file: str
    line: int
    function: str
    kind: str
    property: str
    status: str


class Analysis(Struct, frozen=True):
    """Result of one analysis.

    Attributes:
        problem: reason why the analysis did not end; empty if it did.
        seconds: real time that it took.
    """

    alarms: tuple[Alarm, ...]
    problem: str
    seconds: float


def version() -> str:
    """Return the version of Frama-C.

    Raises:
        ToolError: it is not installed.
    """
    if shutil.which(FRAMA_C) is None:
        raise ToolError(f"proofs need {FRAMA_C} on PATH; install it: {INSTALL}")
    what = f"asking {FRAMA_C} for its version"
    return run_tool([FRAMA_C, "-version"], Path.cwd(), _VERSION_SECONDS, what).stdout.strip()


def analyse(
    folder: Path, sources: Sequence[Path], headers: Path, pointer_bits: int, seconds: float
) -> Analysis:
    """Analyse a program with a main function.

    Args:
        folder: folder in which the analysis runs, and writes.
        sources: absolute paths of the C files. Frama-C resolves others from $PWD.
        headers: folder of the headers.
        pointer_bits: number of bits of a pointer, see `MACHINES`.
        seconds: limit of real time.
    """
    command = [
        FRAMA_C,
        f"-machdep={MACHINES[pointer_bits]}",
        f"-cpp-extra-args=-I{headers} -DMF_NO_ASM",
        *map(str, sources),
        "-eva",
        "-eva-no-print",
        "-eva-no-results",
        "-eva-no-show-progress",
        f"-eva-min-loop-unroll={_UNROLLED}",
        # Compilers define conversions to narrower signed types (C99, 6.3.1.3): GCC and Clang wrap.
        "-no-warn-signed-downcast",
        # Infinities and NaN are results like others (IEC 60559), and inputs may be any bytes.
        "-warn-special-float=none",
        f"-report-csv={folder / _PROPERTIES}",
        "-report-no-proven",
    ]
    begin = time.monotonic()
    problem = ""
    try:
        done = run_tool(command, folder, seconds, "the analysis")
        if done.returncode != 0:
            problem = f"{FRAMA_C} ended with status {done.returncode}: {_error(done.stdout + done.stderr)}"
    except ToolTimeout as error:
        problem = str(error)
    path = folder / _PROPERTIES
    alarms = tuple(_alarms(path)) if path.is_file() else ()
    if not problem and not path.is_file():
        problem = f"{FRAMA_C} must write {_PROPERTIES}; it ended successfully without"
    return Analysis(alarms, problem, time.monotonic() - begin)


def _alarms(path: Path) -> Sequence[Alarm]:
    """Read the unproved properties of the analysed files.

    Contracts of library functions are listed for each call, and again for the library. The latter also count
    calls that the analysis does not reach.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            Alarm(r["file"], int(r["line"]), r["function"], r["property kind"], r["property"], r["status"])
            for r in rows
            if not r["directory"].startswith("FRAMAC_SHARE")
        ]


def _error(text: str) -> str:
    problems = [line for line in text.splitlines() if "Error:" in line]
    return problems[0] if problems else "it printed no error"
