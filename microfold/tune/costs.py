"""Use of a database in builds: measured costs of kernels, and tuned choices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.kernels.selection.measured import MeasuredCosts
from microfold.options import Options
from microfold.passes.context import PassContext
from microfold.target import Target
from microfold.tune.database import Database
from microfold.tune.identity import program_key
from microfold.tune.plans import Plan, best_plan
from microfold.tune.setting import SIMULATED, Setting, code_flags

# Maximum number of settings in a message.
_SHOWN = 6


def load_costs(path: Path, target: Target, options: Options, board: str = "") -> MeasuredCosts | None:
    """Return the measured costs for a build.

    Args:
        board: board of the measurements: ``NAME``, ``NAME@HERTZ`` or ``NAME@HERTZ/warm``; empty: the only
            board in the database, or the simulated one.

    Returns:
        None if nothing was measured for the build; `what_applies` explains why.

    Raises:
        InputError: the database cannot be read, has several boards, or does not have the named board.
    """
    with Database(path) as database:
        setting = _applying(database, target, options, board)
        return None if setting is None else database.costs(setting)


def load_plan(
    path: Path, graph: Graph, target: Target, options: Options, context: PassContext, board: str = ""
) -> Plan:
    """Return the best measured choices for a build of this model; an empty plan if it was not tuned.

    Args:
        graph: imported graph.
        path, board: as for `load_costs`.

    Raises:
        InputError: as `load_costs`.
    """
    with Database(path) as database:
        setting = _applying(database, target, options, board)
        if setting is None:
            return Plan({}, {})
        records = database.programs(setting, program_key(graph, target, options, context))
        return best_plan(records, options)


def what_applies(path: Path, target: Target, options: Options) -> str:
    """Return a message that a database has no measurements for a build, with the settings that it has."""
    with Database(path) as database:
        wanted = _wanted(target, options)
        have = _have(database.settings(), wanted)
    return f"no record in {path} applies to {_build(wanted)}; {have}: kernels are selected by estimates"


def _applying(database: Database, target: Target, options: Options, board: str) -> Setting | None:
    wanted = _wanted(target, options)
    settings = database.settings()
    found = [each for each in settings if _anywhere(each) == wanted]
    if board and not any(_called(each, board) for each in found):
        have = _have(settings, wanted)
        raise InputError(
            f"{database.path} has no measurements from {board} for {_build(wanted)}; {have}: "
            "run `microfold tune`, or remove --board"
        )
    return _choose(found, board, database.path)


def _wanted(target: Target, options: Options) -> Setting:
    """Return the part of a setting that must match a build, without the board."""
    return Setting(target.name, "", 0, "", code_flags(target, options))


def _anywhere(setting: Setting) -> Setting:
    return replace(setting, board="", clock=0, caches="")


def _build(wanted: Setting) -> str:
    return f"a build for {wanted.target}, {wanted.level}"


def _have(settings: Sequence[Setting], wanted: Setting) -> str:
    if not settings:
        return "it has none"
    shown = "; ".join(_told(setting, wanted) for setting in settings[:_SHOWN])
    return f"it has some for {shown}" + (f"; and {len(settings) - _SHOWN} more" if settings[_SHOWN:] else "")


def _told(setting: Setting, wanted: Setting) -> str:
    """Return a setting in words, with its other differences from the wanted one."""
    text = f"{setting.target}, {setting.level}, {setting.where}"
    if setting.version != wanted.version:
        text += f", measured by microfold {setting.version}, not {wanted.version}"
    if (setting.target, setting.level) == (wanted.target, wanted.level) and setting.flags != wanted.flags:
        text += f", compiled by `{setting.flags}`, not `{wanted.flags}`"
    return text


def _called(setting: Setting, board: str) -> bool:
    return board in (setting.board, f"{setting.board}@{setting.clock}", setting.where)


def _choose(found: list[Setting], board: str, path: Path) -> Setting | None:
    if board:
        found = [setting for setting in found if _called(setting, board)]
    else:
        found = [s for s in found if s.board != SIMULATED] or found
    if len(found) > 1:
        raise InputError(
            f"a build must use one board; {path} has measurements from {', '.join(s.where for s in found)}: "
            "choose one with --board"
        )
    return found[0] if found else None
