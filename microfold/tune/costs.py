"""The costs that a build takes from a database."""

from __future__ import annotations

from pathlib import Path

from microfold.errors import InputError
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.options import Options
from microfold.target import Target
from microfold.tune.database import Database
from microfold.tune.setting import SIMULATED, Setting, code_flags


def load_costs(path: Path, target: Target, options: Options, board: str = "") -> MeasuredCosts | None:
    """What was measured for such a build.

    Args:
        path: of the database.
        board: where: ``NAME``, ``NAME@HERTZ`` or ``NAME@HERTZ/warm``; empty: the only board that there is, or
            else the simulated one.

    Returns:
        None if nothing was.

    Raises:
        InputError: the database cannot be read, has several boards, or not the one that is named.
    """
    with Database(path) as database:
        wanted = Setting(target.name, "", 0, "", code_flags(target, options))
        found = [
            setting
            for setting in database.settings()
            if (setting.target, setting.flags, setting.version)
            == (wanted.target, wanted.flags, wanted.version)
        ]
        setting = _choose(found, board, path)
        if setting is None:
            return None
        return MeasuredCosts(database.figures(setting), setting.where)


def _choose(found: list[Setting], board: str, path: Path) -> Setting | None:
    if board:
        named = [s for s in found if board in (s.board, f"{s.board}@{s.clock}", s.where)]
        if not named:
            have = ", ".join(s.where for s in found) or "none"
            raise InputError(
                f"{path} must have what was measured on {board} for this target and level; it has {have}: "
                "measure with `microfold tune`, or leave --board away"
            )
        found = named
    else:
        found = [s for s in found if s.board != SIMULATED] or found
    if len(found) > 1:
        raise InputError(
            f"a build takes what was measured in one place; {path} has {', '.join(s.where for s in found)}: "
            "name one with --board"
        )
    return found[0] if found else None
