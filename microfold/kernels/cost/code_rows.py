"""Code sizes of kernel functions: one data file for each core whose code was measured.

Files lie in ``code_data``. The head has what all kernels share, in bytes at -O2 and at -Os; then each name of
a function has a table::

    [core]
    provenance = "…"
    functions = 1760                     # that were measured at -O2, and as many at -Os
    median_error = 0.01                  # of functions that were held back from the fit
    tail_error = 0.08                    # nine of ten of them are off by no more
    program = [60, 52]                   # code of a program without calls: its run function and others
    call = [10, 9]                       # code of a call in the run function
    pointer = [4, 4]                     # code of handing a tensor or scratch to a call
    helpers.mf_doubling_product = [20, 18]

    [s8_softmax__c]
    functions = 8
    error = 0.05                         # nine of ten functions that were held back are off by no more
    code.base = [364, 340, 240, 208]     # shared and alone at -O2, shared and alone at -Os
    code."rows=1" = [0, -48, 0, -24]     # a term, see `code_terms`
    helpers.mf_doubling_product = "base" # the term that is not 0 where the function calls the helper

A function that is missing in the file of the closest core is taken from the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from microfold.kernels.call import KernelCall
from microfold.kernels.cost.code import CodeBytes
from microfold.kernels.cost.code_terms import term
from microfold.kernels.cost.coefficients import chain
from microfold.kernels.cost.tables import Tables
from microfold.support.frozen import frozen
from microfold.support.toml import parse_toml

FOLDER = Path(__file__).parent / "code_data"
# The least that a function takes, in bytes: a jump to another one, and its address.
_LEAST = 8
# From which error on a table needs a note.
LARGEST_CODE_ERROR = 0.1

# Shared and alone at -O2, shared and alone at -Os, in bytes.
Columns = tuple[float, float, float, float]
# At -O2 and at -Os, in bytes.
Levels = tuple[float, float]


@frozen
class CodeRow:
    """The code of the functions with one name.

    Attributes:
        functions: how many were measured, of as many specifications.
        error: the 90th percentile of the deviation of estimates from functions that were held back, as a part
            of these; None if there were too few to hold any back.
        code: bytes of each term.
        helpers: by name the term that is not 0 where the function calls it.
    """

    functions: int
    error: float | None
    code: Mapping[str, Columns]
    helpers: Mapping[str, str]


@frozen
class CodeFile:
    """A data file.

    Attributes:
        name: a core's.
        provenance: how it was measured, for people.
        functions, median_error, tail_error: of all functions, see the module.
        program: code of the run function, and others that the firmware calls, without calls of kernels.
        call: code of a call in the run function.
        pointer: code of handing an input, an output or scratch to a call.
        helpers: code of helper functions that the compiler keeps apart.
        rows: by name of the function.
    """

    name: str
    provenance: str
    functions: int
    median_error: float
    tail_error: float
    program: Levels
    call: Levels
    pointer: Levels
    helpers: Mapping[str, Levels]
    rows: Mapping[str, CodeRow]

    def estimate(self, call: KernelCall, *, small: bool) -> CodeBytes | None:
        """Return the code of the function of a call, or None if the file lacks it.

        Args:
            small: it is compiled for size.
        """
        row = self.rows.get(call.function.name)
        if row is None:
            return None
        spec = dict(call.function.spec)
        values = {**call.parameters, **spec}
        column = 2 * small
        shared = alone = 0.0
        for name, code in row.code.items():
            of_term = term(name)
            shared += code[column] * of_term(spec)
            alone += code[column + 1] * of_term(values)
        called = (name for name, condition in row.helpers.items() if term(condition)(values))
        helpers = {name: round(self.helpers[name][small]) for name in called}
        return CodeBytes(
            max(round(shared), _LEAST),
            max(round(alone), _LEAST),
            {name: size for name, size in helpers.items() if size},
        )


@cache
def code_files() -> Mapping[str, CodeFile]:
    """Return all data files by the names of their cores."""
    return {path.stem: read_code_file(path) for path in sorted(FOLDER.glob("*.toml"))}


def read_code_file(path: Path) -> CodeFile:
    text = path.read_text(encoding="utf-8")
    rows = text.index("\n\n[", text.index("[core]"))
    head = parse_toml(text[:rows])["core"]
    return CodeFile(
        path.stem,
        head["provenance"],
        head["functions"],
        head["median_error"],
        head["tail_error"],
        *(tuple(head[name]) for name in ("program", "call", "pointer")),
        {name: tuple(sizes) for name, sizes in head.get("helpers", {}).items()},
        Tables(text[rows:], _row),
    )


def _row(table: Mapping[str, Any]) -> CodeRow:
    code = {name: tuple(columns) for name, columns in table["code"].items()}
    return CodeRow(table["functions"], table.get("error"), code, table.get("helpers", {}))


@cache
def _chain(features: frozenset[str], floats: bool) -> tuple[CodeFile, ...]:
    files = code_files()
    return tuple(files[core.name] for core in chain(features, floats) if core.name in files)


def estimate(call: KernelCall, features: frozenset[str], *, small: bool) -> CodeBytes | None:
    """Return the code of the function of a call on the closest core that has it; None if none has.

    Args:
        features: of the target, closed under implication.
        small: it is compiled for size.
    """
    name = call.function.name
    for file in _chain(features, name.startswith("f")):
        found = file.estimate(call, small=small)
        if found is not None:
            return found
    return None


def call_code(features: frozenset[str], calls: int, pointers: int, *, small: bool) -> float:
    """Return the code around a program's kernels: its run function, and what else the firmware calls; bytes.

    Args:
        features: of the target, closed under implication.
        calls: how many the run function makes.
        pointers: how many inputs, outputs and areas of scratch it hands to all of them.
        small: it is compiled for size.
    """
    file = _chain(features, False)[0]
    return file.program[small] + calls * file.call[small] + pointers * file.pointer[small]


def description_bytes(call: KernelCall) -> int:
    """Return the bytes of the layer description of a call: its fields, in types that are just large enough.

    Numbers that all calls of a function share are not in descriptions, so that this is the most; see
    `codegen.common_fields`. `--optimize speed` has four bytes for each number.
    """
    declared = {field.name for field in call.function.fields if field.c_type}
    size = 0
    for name, value in call.parameters.items():
        is_open = isinstance(value, int) and name not in declared and "." not in name
        size += 4 if not is_open else _number_bytes(value)
    return -(-size // 4) * 4


def _number_bytes(value: int) -> int:
    return 1 if -128 <= value <= 255 else 2 if -32768 <= value <= 65535 else 4
