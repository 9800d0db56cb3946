"""The documentation's site: links that leave the pages, and that all pages are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.site_links import rewrite, source_url

ROOT = Path(__file__).resolve().parents[2]
URL = "https://example.org/microfold"


@pytest.mark.parametrize(
    ("link", "with_url", "without"),
    [
        ("[file](../templates/x.j2)", f"[file]({URL}/blob/main/templates/x.j2)", "file (`templates/x.j2`)"),
        ("[`x.py`](../microfold/x.py)", f"[`x.py`]({URL}/blob/main/microfold/x.py)", "`x.py`"),
        ("[cores](../targets)", f"[cores]({URL}/tree/main/targets)", "cores (`targets`)"),
        ("[here](taps.md#profile)", "[here](taps.md#profile)", "[here](taps.md#profile)"),
        ("[there](https://a.org/../b)", "[there](https://a.org/../b)", "[there](https://a.org/../b)"),
        ("```md\n[a](../b)\n```", "```md\n[a](../b)\n```", "```md\n[a](../b)\n```"),
    ],
)
def test_links_that_leave_the_pages(link: str, with_url: str, without: str) -> None:
    text = "Before {}, after.\n" if not link.startswith("```") else "Before\n\n{}\n\nafter.\n"
    assert rewrite(text.format(link), URL) == text.format(with_url)
    assert rewrite(text.format(link), None) == text.format(without)


def test_no_link_is_left_to_leave_the_pages() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert "](../" not in re.sub(
            r"^```.*?^```$", "", rewrite(page.read_text("utf-8"), URL), flags=re.M | re.S
        )


def test_the_address_is_that_of_the_project(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text("[project]\n", encoding="utf-8")
    assert source_url(project) is None
    project.write_text(f'[project.urls]\nSource = "{URL}/"\n', encoding="utf-8")
    assert source_url(project) == URL


def test_every_page_stands_in_the_navigation_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2].partition("theme:")[0]
    pages = re.findall(r"[\w-]+\.md", navigation)
    assert sorted(pages) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))
