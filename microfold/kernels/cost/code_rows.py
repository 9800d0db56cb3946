"""Code sizes of kernel functions: one data file for each measured core.

The files are in the folder ``code_data``. The head of a file has the sizes that all kernels share, in bytes
at -O2 and at -Os. A table for each function name follows::

    [core]
    provenance = "…"
    functions = 1760                     # number of measured functions
    known_errors = [0.004, 0.03]         # median and 90th percentile, for names with all functions measured
    held_back_errors = [0.03, 0.15]      # the same for other names, of functions held back from the fit
    program = [60, 52]                   # code of a program without calls: its run function and others
    call = [27, 22]                      # code of a call in the run function
    helpers.mf_doubling_product = [20, 18]

    [s8_softmax__c]
    functions = 8
    error = 0.03                         # 90th percentile of the error; or held_back_error
    code.base = [364, 340, 0, 240, 208, 0]  # shared, alone, parts of both; at -O2, then at -Os
    code."rows=1" = [0, -48, 0, 0, -24, 0]  # a term, see `code_terms`
    least = [364, 290, 0, 240, 160, 0]   # smallest measured sizes
    most = [364, 340, 0, 240, 208, 0]    # largest measured sizes
    helpers.mf_doubling_product = "base" # term that is not 0 if the function calls the helper

Parts are functions within a function that do not read the layer struct. At -Os, compilers merge equal parts.
Therefore a part is in flash once for all functions with one name that are equal in the choices on which parts
depend. At -O2, they make a copy of a part for each function that passes other constants to it.

A function that is missing in the file of the closest core is looked up in the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from microfold.kernels.call import KernelCall
from microfold.kernels.cost.code import CodeBytes
from microfold.kernels.cost.code_terms import Values, names, term
from microfold.kernels.cost.coefficients import chain
from microfold.kernels.cost.tables import Tables, read_file

FOLDER = Path(__file__).parent / "code_data"
# Functions that several layers call are measured with layers that differ in every number. The layers of a
# program share many numbers, which compilers fold into the code. Source: 50 functions of 13 models on the M4,
# at -O2 and -Os. Measured sizes times this factor are off by 5 % (median), 14 % (80th percentile) and 31 %
# (90th percentile).
IN_PROGRAMS = 0.9
# Bytes of a function's parts for which a term must account. The fit gives smaller shares to choices on which
# no part depends. Source: the M4's data, where such shares are below 9 bytes and others above 20.
_PART_NOISE = 16
# Minimum size of a function, in bytes: a jump to another one, and its address.
_LEAST = 8
# Shared, alone and parts, in bytes, at -O2, then at -Os.
Columns = tuple[float, float, float, float, float, float]
# Column of the parts at -Os.
_SMALL_PARTS = 5
# Two numbers: sizes at -O2 and at -Os, in bytes, or the median and the 90th percentile of an error.
Levels = tuple[float, float]


class CodeRow(Struct, frozen=True):
    """Code size of the functions with one name.

    Attributes:
        functions: number of measured functions, each with its own specification.
        complete: whether the layers of the calibration lead to all functions with this name.
        error: 90th percentile of the relative deviation of estimates: of all functions if `complete`, else of
            functions that were held back from the fit.
        code: bytes of each term.
        least, most: bytes of the smallest and the largest measured function; estimates are clamped to them.
        helpers: by helper name, the term that is not 0 if the function calls the helper.
    """

    functions: int
    complete: bool
    error: float
    code: Mapping[str, Columns]
    least: Columns
    most: Columns
    helpers: Mapping[str, str]

    def size(self, column: int, values: Values) -> float:
        """Return the bytes of one column, for a function's choices and the fields of its layer."""
        found = sum(code[column] * term(name)(values) for name, code in self.code.items())
        return min(max(found, self.least[column]), self.most[column])

    def choices_of_parts(self, column: int, spec: Values) -> list[str]:
        """Return the choices on which the parts of a function depend, with their values.

        The fit tells which choices of the specification do not matter: those in terms, if none of the terms
        accounts for many bytes of the parts.
        """
        matters: dict[str, bool] = {}
        for text, code in self.code.items():
            share = abs(code[column] * term(text)(spec))
            for name in names(text):
                matters[name] = matters.get(name, False) or share >= _PART_NOISE
        return [f"{name}={value}" for name, value in spec.items() if matters.get(name, True)]


class CodeFile(Struct, frozen=True):
    """Contents of one data file.

    Attributes:
        name: name of the core.
        provenance: description of the measurement, for readers.
        functions: number of measured functions.
        known_errors, held_back_errors: median and 90th percentile of the relative deviation of estimates. The
            first pair is for names with all functions measured, the second one for functions of other names
            that were held back from the fit.
        program: code of the run function and of other functions that the firmware calls, without kernel
            calls.
        call: code of a call in the run function, with its arguments.
        helpers: code of helper functions that the compiler does not inline.
        rows: rows by function name.
    """

    name: str
    provenance: str
    functions: int
    known_errors: Levels
    held_back_errors: Levels
    program: Levels
    call: Levels
    helpers: Mapping[str, Levels]
    rows: Mapping[str, CodeRow]

    def estimate(self, call: KernelCall, *, small: bool) -> CodeBytes | None:
        """Return the code size of the function of a call, or None if the file lacks it.

        Args:
            small: whether the function is compiled for size.
        """
        row = self.rows.get(call.function.name)
        if row is None:
            return None
        spec = dict(call.function.spec)
        values = {**call.parameters, **spec}
        shared = max(round(row.size(3 * small, spec) * IN_PROGRAMS), _LEAST)
        alone = max(round(row.size(3 * small + 1, values)), _LEAST)
        called = (name for name, condition in row.helpers.items() if term(condition)(values))
        helpers = {name: round(self.helpers[name][small]) for name in called}
        if small:
            parts = max(min(round(row.size(_SMALL_PARTS, spec)), shared - _LEAST, alone - _LEAST), 0)
            same = ", ".join(row.choices_of_parts(_SMALL_PARTS, spec))
            helpers[f"{call.function.name} with {same}"] = parts
            shared, alone = shared - parts, alone - parts
        return CodeBytes(shared, alone, {name: size for name, size in helpers.items() if size > 0})


@cache
def code_files() -> Mapping[str, CodeFile]:
    """Return all data files by the names of their cores."""
    return {path.stem: read_code_file(path) for path in sorted(FOLDER.glob("*.toml"))}


def read_code_file(path: Path) -> CodeFile:
    """Read one data file of code sizes."""
    head, rows = read_file(path)
    return CodeFile(
        path.stem,
        head["provenance"],
        head["functions"],
        tuple(head["known_errors"]),
        tuple(head["held_back_errors"]),
        tuple(head["program"]),
        tuple(head["call"]),
        {name: tuple(sizes) for name, sizes in head.get("helpers", {}).items()},
        Tables(rows, _row),
    )


def _row(table: Mapping[str, Any]) -> CodeRow:
    code = {name: tuple(columns) for name, columns in table["code"].items()}
    complete = "error" in table
    error = table["error" if complete else "held_back_error"]
    least, most = (tuple(table.get(name, code["base"])) for name in ("least", "most"))
    return CodeRow(table["functions"], complete, error, code, least, most, table.get("helpers", {}))


@cache
def _chain(features: frozenset[str], floats: bool) -> tuple[CodeFile, ...]:
    files = code_files()
    return tuple(files[core.name] for core in chain(features, floats) if core.name in files)


def estimate(call: KernelCall, features: frozenset[str], *, small: bool) -> CodeBytes | None:
    """Return the code size of the function of a call on the closest core that has it; None if none has it.

    Args:
        features: features of the target, closed under implication.
        small: whether the function is compiled for size.
    """
    name = call.function.name
    for file in _chain(features, name.startswith("f")):
        found = file.estimate(call, small=small)
        if found is not None:
            return found
    return None


def around_calls(features: frozenset[str], calls: int, *, small: bool) -> float:
    """Return the code around a program's kernels, in bytes: run function, and other functions of the API.

    Args:
        features: features of the target, closed under implication.
        calls: number of kernel calls in the run function.
        small: whether the program is compiled for size.
    """
    file = _chain(features, False)[0]
    return file.program[small] + calls * file.call[small]


def description_bytes(call: KernelCall) -> int:
    """Return the size of the layer struct of a call, in bytes, with the narrowest types for its fields.

    This is an upper bound, because fields that all calls of a function share are removed from layer structs;
    see `codegen.common_fields`. `--optimize speed` uses four bytes for each number. A function with a single
    layer needs no struct.
    """
    declared = {field.name for field in call.function.fields if field.c_type}
    size = 0
    for name, value in call.parameters.items():
        is_open = name not in declared and "." not in name
        size += _number_bytes(value) if isinstance(value, int) and is_open else 4
    return -(-size // 4) * 4


def _number_bytes(value: int) -> int:
    return 1 if -128 <= value <= 255 else 2 if -32768 <= value <= 65535 else 4
