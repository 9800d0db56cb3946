"""Every name of microfold on the page for users of TVM exists, and every name of TVM stands there once."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from microfold.cli.app import application
from microfold.cli.passes_text import parse_passes
from microfold.transform import available

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-tvm.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| TVM ")
]
DASH = "\N{EN DASH}"
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row[1])})


def command_line() -> set[str]:
    """All commands, as ``microfold NAME``, and all options."""
    group: Any = typer.main.get_command(application())
    found = {f"microfold {name}" for name in group.commands}
    return found.union(*({*each.opts} for command in group.commands.values() for each in command.params))


def exists(name: str) -> bool:
    if not name.startswith("microfold."):
        return False
    module, path = name, list[str]()
    while True:
        try:
            found: Any = import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            path.insert(0, last)
    for part in path:
        if not hasattr(found, part):
            fields = getattr(found, "__annotations__", {})
            return part in fields
        found = getattr(found, part)
    return True


def test_names_of_microfold() -> None:
    known = command_line()
    missing: list[str] = []
    for name in NAMES:
        if "{" in name:
            parse_passes(name)  # raises if there is no such pass or option
        elif not (name in known or name in available() or exists(name)):
            missing.append(name)
    assert not missing


def test_rows_are_whole() -> None:
    """Three cells each; ours is a name or a dash; a dash has a reason."""
    for row in ROWS:
        assert len(row) == 3, row
        assert row[1].startswith("`") or (row[1] == DASH and row[2]), row


@pytest.mark.parametrize("name", ["microfold.passes.kinds.Nope", "microfold.nope"])
def test_the_check_finds_what_is_missing(name: str) -> None:
    assert not exists(name)
