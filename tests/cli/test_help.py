"""The text of `--help`: options in groups, and lines that fit a terminal of 80 columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from microfold.cli import panels
from microfold.cli.app import COMMANDS
from tests.command_line import succeed

PANELS = (
    panels.BOARDS,
    panels.SUITES,
    panels.GOALS,
    panels.PORTS,
    panels.MEMORIES,
    panels.CODE,
    panels.PASSES,
)
OPTIONS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def groups(text: str) -> dict[str, set[str]]:
    """The options of each group of a help text."""
    found: dict[str, set[str]] = {}
    name = ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"(\w.*):", line):
            name = heading[1]
        elif re.match(r"  -", line):
            found.setdefault(name, set()).update(re.findall(r"--[a-z-]+", line.split("  ")[1]))
    return found


def test_summaries_are_not_cut() -> None:
    lines = succeed("--help").partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("..") and len(line) <= 80 for line in lines)


@pytest.mark.parametrize("command", COMMANDS)
def test_lines_fit_and_options_are_in_groups(command: str) -> None:
    text = succeed(command, "--help")
    assert max(map(len, text.splitlines())) <= 80
    assert set(groups(text)) <= {"Options", *PANELS}
    assert "<list[" not in text.partition("Options:")[0]
    if command == "build":
        found = groups(text)
        assert found["Options"] == {"--target", "--output", "--json", "--help"}
        assert {"--flash", "--ram", "--optimize"} <= found[panels.GOALS]


def test_groups_are_those_of_the_page() -> None:
    """docs/options.md has the options of `build` in the sections of the same names."""
    shown = groups(succeed("build", "--help"))
    page = OPTIONS_PAGE.read_text(encoding="utf-8")
    for name in (panels.GOALS, panels.PORTS, panels.MEMORIES, panels.CODE):
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        rows = [line.partition(" | ")[0] for line in section.splitlines() if line.startswith("| `--")]
        options = re.compile(r"`(--[a-z-]+)")
        assert set(options.findall(" ".join(rows))) <= shown[name] <= set(options.findall(section)), name
