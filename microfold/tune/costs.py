"""What a build takes from a database: the costs of kernels, and choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

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

# Settings that a message lists at most.
_SHOWN = 6


def load_costs(path: Path, target: Target, options: Options, board: str = "") -> MeasuredCosts | None:
    """What was measured for such a build.

    Args:
        path: of the database.
        board: where: ``NAME``, ``NAME@HERTZ`` or ``NAME@HERTZ/warm``; empty: the only board that there is, or
            else the simulated one.

    Returns:
        None if nothing was; `what_applies` tells why.

    Raises:
        InputError: the database cannot be read, has several boards, or not the one that is named.
    """
    with Database(path) as database:
        setting = _applying(database, target, options, board)
        return None if setting is None else database.costs(setting)


def load_plan(
    path: Path, graph: Graph, target: Target, options: Options, context: PassContext, board: str = ""
) -> Plan:
    """The choices that were measured to be best for a build of this very model; none if it was not tuned.

    Args:
        graph: as it was imported.
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
    """For people: that nothing in a database holds for such a build, and what it has."""
    with Database(path) as database:
        wanted = _wanted(target, options)
        have = _have(database.settings(), wanted)
    return f"no record in {path} applies to {_build(wanted)}; {have}: kernels are chosen by estimates"


def _applying(database: Database, target: Target, options: Options, board: str) -> Setting | None:
    """The setting whose figures a build takes."""
    wanted = _wanted(target, options)
    settings = database.settings()
    found = [each for each in settings if _anywhere(each) == wanted]
    if board and not any(_called(each, board) for each in found):
        have = _have(settings, wanted)
        raise InputError(
            f"{database.path} must have what was measured on {board} for {_build(wanted)}; {have}: "
            "measure with `microfold tune`, or leave --board away"
        )
    return _choose(found, board, database.path)


def _wanted(target: Target, options: Options) -> Setting:
    """What decides whether a measurement holds for a build, wherever it was made."""
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
    """A setting, with what else differs from what is wanted."""
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
            f"a build takes what was measured in one place; {path} has {', '.join(s.where for s in found)}: "
            "name one with --board"
        )
    return found[0] if found else None
