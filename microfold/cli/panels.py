"""Groups of options in the text of `--help`, which docs/options.md has too."""

from __future__ import annotations

from typing import Any

GOALS = "Goals and limits"
PORTS = "Inputs and outputs"
MEMORIES = "Memory"
CODE = "Generated code"
PASSES = "Compiler passes"
SUITES = "Many models or targets"
BOARDS = "Boards"
# Arguments, and options that belong to a single command.
_ARGUMENTS, _COMMAND = "Arguments", "Options"
_ORDER = (_ARGUMENTS, _COMMAND, BOARDS, SUITES, GOALS, PORTS, MEMORIES, CODE, PASSES)


def write_groups(parameters: list[Any], context: Any, formatter: Any) -> None:
    """Write the lines of all arguments and options of a command, each group under its name.

    Args:
        parameters: parameters of typer, which have their group as `rich_help_panel`.
        context: context of the command.
        formatter: writer of the help text.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for parameter in parameters:
        record = parameter.get_help_record(context)
        if record is None:
            continue
        if parameter.param_type_name == "argument":
            name, text = record
            groups.setdefault(_ARGUMENTS, []).append((name.partition(" <")[0], text))  # without Python's type
        else:
            groups.setdefault(parameter.rich_help_panel or _COMMAND, []).append(record)
    for name in sorted(groups, key=_ORDER.index):
        with formatter.section(name):
            formatter.write_dl(groups[name])
