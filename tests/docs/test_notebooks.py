"""The notebooks of the documentation run, and show what their cells give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.notebooks import execute, without_html
from tests.golden import Golden
from tests.needs import need_tools

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_run(name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their texts and numbers are those of the file; `--update-golden` writes them."""
    need_tools("cc", "arm-none-eabi-gcc", "qemu-system-arm")
    monkeypatch.chdir(FOLDER)  # as Jupyter does
    recorded = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    found = execute(recorded)
    golden = Golden(FOLDER, bool(request.config.getoption("--update-golden")), "tests/docs/test_notebooks.py")
    if golden.update:
        golden.check(name, json.dumps(found, indent=1) + "\n")
    assert without_html(found) == without_html(recorded if not golden.update else found)


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS == ["compare-cores.ipynb", "first-model.ipynb"]
