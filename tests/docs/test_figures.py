"""Figures of models in the pages are those that are measured.

``pytest tests/docs/test_figures.py --update-golden`` measures what is asked for and not recorded, and writes
the tables into the pages. To measure all anew, remove `figures.json` before; that takes about half an hour.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from microfold.simulate.toolchain import ARM_COMPILER
from microfold.support.tools import run_tool
from tests.docs import figures
from tests.frontend.models import elsewhere
from tests.needs import CROSS_TOOLS, need_tools

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = sorted(figures.asked())
# What the pages say that figures are made with.
COMPILER = "12.2"
END = "<!-- end -->"


def begin(name: str) -> str:
    return f"<!-- figures `{name}`: written by `pytest tests/docs/test_figures.py --update-golden` -->\n"


def check(command: str, *, update: bool) -> None:
    """Measure, and compare with what is recorded; or record it."""
    names = figures.asked()[command]
    model = figures.model_file(command, elsewhere())
    if model is None:
        pytest.skip(f"MICROFOLD_MODELS has no {command.split()[0]}.tflite")
    need_tools(*CROSS_TOOLS)
    version = run_tool([ARM_COMPILER, "-dumpfullversion"], Path.cwd(), 10.0, "asking for its version").stdout
    if not version.startswith(f"{COMPILER}."):
        pytest.skip(f"figures are of GCC {COMPILER}; this is {version.strip()}")
    found = figures.measured(model, command, names)
    recorded = dict(figures.load().recorded)
    if update:
        figures.save({**recorded, command: found})
        return
    assert found == recorded.get(command), f"microfold bench {command}: run pytest with --update-golden"


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", COMMANDS)
def test_figures_are_those_that_are_measured(command: str) -> None:
    check(command, update=False)


@pytest.mark.slow
def test_figures_of_an_example() -> None:
    check("digits --target cortex-m4", update=False)


def test_pages_have_the_figures(request: pytest.FixtureRequest) -> None:
    update = bool(request.config.getoption("--update-golden"))
    recorded = figures.load().recorded
    if update:
        for command in COMMANDS:
            if {*recorded.get(command, {})} != figures.asked()[command]:
                check(command, update=True)
        recorded = figures.load().recorded
        figures.save({command: recorded[command] for command in COMMANDS})
    recorded = figures.load()
    assert {*recorded.recorded} == {*COMMANDS}
    for page, name, render in figures.TABLES:
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        pattern = re.escape(begin(name)) + ".*?" + re.escape(END)
        block = f"{begin(name)}\n{render(recorded)}\n\n{END}"
        assert len(re.findall(pattern, text, re.S)) == 1, f"{page} has one table {name}"
        written = re.sub(pattern, lambda _, block=block: block, text, flags=re.S)
        if update:
            path.write_text(written, encoding="utf-8")
        assert text == written or update, f"{page}: figures differ; run pytest with --update-golden"
