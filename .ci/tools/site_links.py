"""Hook of mkdocs for links from pages to repository files outside docs/.

On a code host these links work unchanged. On the site they lead to the repository's address, `Source` in
`[project.urls]` of pyproject.toml. Without this entry, the site shows names of files instead of links.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
# All pages are in one folder, so links that leave the folder start with ``../``.
LEAVING = re.compile(r"\[([^\]]+)\]\(\.\./([^)\s#]+)\)")


def source_url(project: Path = ROOT / "pyproject.toml") -> str | None:
    """Return the repository's address, or None if the project states none."""
    urls = tomllib.loads(project.read_text(encoding="utf-8"))["project"].get("urls", {})
    return urls["Source"].rstrip("/") if "Source" in urls else None


def rewrite(markdown: str, url: str | None) -> str:
    """Return the page with its repository links rewritten for the site; fenced blocks do not change."""

    def target(link: re.Match[str]) -> str:
        text, path = link.groups()
        if url is not None:
            kind = "tree" if (ROOT / path).is_dir() else "blob"
            return f"[{text}]({url}/{kind}/main/{path})"
        return text if "`" in text else f"{text} (`{path}`)"

    parts = FENCED.split(markdown)
    return "".join(part if index % 2 else LEAVING.sub(target, part) for index, part in enumerate(parts))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Rewrite a page; mkdocs calls this function for each page."""
    return rewrite(markdown, source_url())
