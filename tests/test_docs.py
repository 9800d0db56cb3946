"""The documentation names what is there."""

from __future__ import annotations

import re
from pathlib import Path

from microfold.frontend.operators import IMPORTERS

ROOT = Path(__file__).resolve().parents[1]


def test_operator_table_is_complete() -> None:
    """Every operator that can be imported has a row, and no row names another."""
    table = (ROOT / "docs" / "operators.md").read_text()
    rows = [line.split("|")[1] for line in table.splitlines() if re.match(r"\| [A-Z]", line)]
    named = set(re.findall(r"[A-Z][A-Z0-9_]+", " ".join(rows)))
    assert named == set(IMPORTERS)


def test_links_of_the_pages_exist() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name} links to {link}"
