"""Integer programs, and their solution by HiGHS to proved optimality.

All data are integers. Therefore no solution exceeds a limit by a rounding error, and a solution is optimal as
soon as the gap to the bound is below one. There is no time limit, because results would then depend on the
machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from microfold.errors import InputError

if TYPE_CHECKING:
    import highspy

# Coefficients of a sum, by column number.
Terms = Mapping[int, int]


class LinearConstraint(Struct, frozen=True):
    """Constraint: the sum of some columns is between two integers, or below one."""

    least: float
    most: float
    terms: Terms


class IntegerProgram:
    """Columns that are 0 or 1, and rows that constrain them.

    Attributes:
        names: names of the columns, for readers of an exported program.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.rows: list[LinearConstraint] = []

    def copy(self) -> IntegerProgram:
        """Return an independent copy of the program."""
        other = IntegerProgram()
        other.names, other.rows = [*self.names], [*self.rows]
        return other

    def column(self, name: str) -> int:
        """Add a column, and return its number."""
        self.names.append(name)
        return len(self.names) - 1

    def exactly(self, value: int, terms: Terms) -> None:
        """Add a row with equality."""
        self.rows.append(LinearConstraint(value, value, terms))

    def at_most(self, value: int, terms: Terms) -> None:
        """Add a row with an upper limit."""
        self.rows.append(at_most(value, terms))


def at_most(value: int, terms: Terms) -> LinearConstraint:
    """Return a row with an upper limit plus one half, because both sides are integers."""
    return LinearConstraint(-math.inf, value + 0.5, terms)


class ProgramSolution(Struct, frozen=True):
    """Optimal solution.

    Attributes:
        taken: for each column, whether it is 1.
        value: value of the objective.
    """

    taken: Sequence[bool]
    value: int


def solve(
    program: IntegerProgram,
    objective: Terms,
    rows: Sequence[LinearConstraint] = (),
    excluded: Collection[int] = (),
) -> ProgramSolution | None:
    """Minimise an objective; None if it is proved that no solution satisfies all rows.

    Args:
        rows: additional rows that must be satisfied.
        excluded: columns that must be 0.
    """
    import highspy  # few builds solve a program

    solver = _model(program, objective, rows, excluded)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kSolveError:
        # Presolve makes some programs infeasible by a rounding error.
        solver = _model(program, objective, rows, excluded)
        solver.setOptionValue("presolve", "off")
        solver.run()
        status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    if status not in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kModelEmpty):
        raise RuntimeError(f"HiGHS must solve a program or prove it infeasible; it ended with {status}")
    taken = [value > 0.5 for value in solver.getSolution().col_value]
    return ProgramSolution(taken, sum(price for column, price in objective.items() if taken[column]))


def least_with(
    program: IntegerProgram, objective: Terms, rows: Sequence[LinearConstraint] = ()
) -> list[float]:
    """Return for each column a lower bound of all solutions in which it is 1; infinite if there are none.

    It is the optimum of the linear relaxation plus the reduced cost of the column.
    """
    import highspy

    if not program.names:
        return []
    solver = _model(program, objective, rows, integers=False)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return [math.inf] * len(program.names)
    if status != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"HiGHS must solve a relaxation or prove it infeasible; it ended with {status}")
    optimum = solver.getInfo().objective_function_value
    return [optimum + max(cost, 0.0) for cost in solver.getSolution().col_dual]


def write_model(
    path: Path, program: IntegerProgram, objective: Terms, rows: Sequence[LinearConstraint] = ()
) -> None:
    """Write a program for another solver, in the format of the file's suffix: ``.lp`` or ``.mps``.

    Raises:
        InputError: the suffix is another one, or the file cannot be written.
    """
    if path.suffix not in (".lp", ".mps"):
        raise InputError(f"an integer program needs a .lp or .mps file; got {path}")
    try:
        path.touch()  # HiGHS does not report failure
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    solver = _model(program, objective, rows)
    for number, name in enumerate(program.names):
        solver.passColName(number, f"{name}#{number}")
    solver.writeModel(str(path))


def _model(
    program: IntegerProgram,
    objective: Terms,
    extra: Sequence[LinearConstraint],
    excluded: Collection[int] = (),
    *,
    integers: bool = True,
) -> highspy.Highs:
    """Return a solver that has been given a program; `integers`: whether columns must be integers."""
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
    # One thread and one seed give the same result each time. The gap is less than a unit. The heuristic
    # search for a first solution would take longer than most programs here.
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
