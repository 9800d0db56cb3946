"""docs/misra.md lists every rule of MISRA C that generated code breaks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.needs import need_tools
from tests.tools.misra import CORES, MODELS, survey

PAGE = Path(__file__).resolve().parents[2] / "docs" / "misra.md"


def rules() -> dict[str, list[str]]:
    """The page's rows by rule."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.read_text("utf-8").splitlines()]
    return {row[0]: row[1:] for row in rows if row and re.fullmatch(r"\d+\.\d+", row[0])}


def test_every_rule_has_a_reason_and_stands_once() -> None:
    numbers = re.findall(r"^\| (\d+\.\d+) \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert numbers == sorted(set(numbers), key=lambda rule: [*map(int, rule.split("."))])
    for rule, (category, times, cores, cause, reason) in rules().items():
        assert category in ("required", "advisory"), rule
        assert re.fullmatch(r"10*\+", times), rule
        assert cores == "all" or {f"cortex-{core}" for core in cores.split(", ")} <= set(CORES), rule
        assert cause, rule
        assert reason, rule


@pytest.mark.exhaustive
def test_the_page_lists_what_cppcheck_finds() -> None:
    """In one of the models; other versions of cppcheck know other rules."""
    need_tools("cppcheck", "arm-none-eabi-gcc")
    (known,) = re.findall(r"cppcheck (\d+\.\d+)", PAGE.read_text(encoding="utf-8"))
    version = subprocess.run(["cppcheck", "--version"], capture_output=True, text=True, check=True).stdout
    if known not in version:
        pytest.skip(f"the page is of cppcheck {known}; this is {version.strip()}")
    found = survey(MODELS[:1])
    assert len(found) > 10
    assert [f"{rule}: {breach.example}" for rule, breach in found.items() if rule not in rules()] == []
