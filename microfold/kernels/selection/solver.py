"""Integer programs, and HiGHS, which solves them to proved optimality.

All data are whole numbers, so that no solution lies a rounding error above a limit, and a solution is optimal
as soon as the gap to the bound is below one. There is no limit of time, which would make results depend on
the machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from microfold.errors import InputError
from microfold.support.frozen import frozen

if TYPE_CHECKING:
    import highspy

# Coefficients of a sum, by the numbers of columns.
Terms = Mapping[int, int]


@frozen
class Row:
    """A constraint: the sum of some columns lies between two whole numbers, or below one."""

    least: float
    most: float
    terms: Terms


class IntegerProgram:
    """Columns that are 0 or 1, and rows that constrain them.

    Attributes:
        names: of the columns, for people who read an exported program.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.rows: list[Row] = []

    def copy(self) -> IntegerProgram:
        """Return a program that can grow apart from this one."""
        other = IntegerProgram()
        other.names, other.rows = [*self.names], [*self.rows]
        return other

    def column(self, name: str) -> int:
        """Add a column, and return its number."""
        self.names.append(name)
        return len(self.names) - 1

    def exactly(self, value: int, terms: Terms) -> None:
        """Add a row with equality."""
        self.rows.append(Row(value, value, terms))

    def at_most(self, value: int, terms: Terms) -> None:
        """Add a row with an upper limit."""
        self.rows.append(at_most(value, terms))


def at_most(value: int, terms: Terms) -> Row:
    """Return a row with an upper limit, half a unit above: the numbers of both sides are whole."""
    return Row(-math.inf, value + 0.5, terms)


@frozen
class Solution:
    """An optimal solution.

    Attributes:
        taken: for each column whether it is 1.
        value: of the objective.
    """

    taken: Sequence[bool]
    value: int


def solve(
    program: IntegerProgram, objective: Terms, rows: Sequence[Row] = (), excluded: Collection[int] = ()
) -> Solution | None:
    """Minimise an objective; None: no solution satisfies all rows, which is proved.

    Args:
        rows: to be satisfied besides the program's own.
        excluded: columns that must be 0.
    """
    import highspy  # few builds solve a program

    solver = _model(program, objective, rows, excluded)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kSolveError:
        # Presolve leaves some programs infeasible by a rounding error.
        solver = _model(program, objective, rows, excluded)
        solver.setOptionValue("presolve", "off")
        solver.run()
        status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    if status not in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kModelEmpty):
        raise RuntimeError(f"HiGHS must solve an integer program or refute it; it ended with {status}")
    taken = [value > 0.5 for value in solver.getSolution().col_value]
    return Solution(taken, sum(price for column, price in objective.items() if taken[column]))


def least_with(program: IntegerProgram, objective: Terms, rows: Sequence[Row] = ()) -> list[float]:
    """Return for each column a value that no solution in which it is 1 goes below; infinite: there is none.

    It is the optimum with fractions, and the reduced cost of the column.
    """
    import highspy

    solver = _model(program, objective, rows, integers=False)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return [math.inf] * len(program.names)
    if status != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"HiGHS must solve a linear program or refute it; it ended with {status}")
    optimum = solver.getInfo().objective_function_value
    return [optimum + max(cost, 0.0) for cost in solver.getSolution().col_dual]


def write_model(path: Path, program: IntegerProgram, objective: Terms, rows: Sequence[Row] = ()) -> None:
    """Write a program for another solver: in the format that the suffix names, ``.lp`` or ``.mps``.

    Raises:
        InputError: it has another suffix, or the file cannot be written.
    """
    if path.suffix not in (".lp", ".mps"):
        raise InputError(f"an integer program is written to a .lp or .mps file; the path is {path}")
    try:
        path.touch()  # HiGHS does not say that it cannot
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    solver = _model(program, objective, rows)
    for number, name in enumerate(program.names):
        solver.passColName(number, f"{name}#{number}")
    solver.writeModel(str(path))


def _model(
    program: IntegerProgram,
    objective: Terms,
    extra: Sequence[Row],
    excluded: Collection[int] = (),
    *,
    integers: bool = True,
) -> highspy.Highs:
    """Return a solver that has been given a program; `integers`: columns may have no fractions."""
    import highspy

    columns, rows = len(program.names), [*program.rows, *extra]
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, len(rows)
    cost = np.zeros(columns)
    for column, value in objective.items():
        cost[column] = value
    most = np.ones(columns)
    most[[*excluded]] = 0
    model.col_cost_, model.col_lower_, model.col_upper_ = cost, np.zeros(columns), most
    model.row_lower_ = np.array([row.least for row in rows])
    model.row_upper_ = np.array([row.most for row in rows])
    if integers:
        model.integrality_ = [highspy.HighsVarType.kInteger] * columns
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = np.cumsum([0, *(len(row.terms) for row in rows)]).astype(np.int32)
    matrix.index_ = np.array([column for row in rows for column in row.terms], np.int32)
    matrix.value_ = np.array([value for row in rows for value in row.terms.values()], float)
    solver = highspy.Highs()
    # One thread and one seed: the same answer each time. The gap is less than a unit. The search for a first
    # solution takes longer than most programs here.
    settings = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 0,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.5,
        "mip_allow_restart": False,
        "mip_heuristic_run_feasibility_jump": False,
    }
    for name, value in settings.items():
        solver.setOptionValue(name, value)
    solver.passModel(model)
    return solver
