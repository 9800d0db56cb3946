"""Hook of mkdocs: links of the pages that leave docs/ for the repository.

On a code host they work as they are. On the site they lead to the repository's address, which is `Source` in
`[project.urls]` of pyproject.toml; as long as there is none, they are shown as the names of files.
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
# Pages lie in one folder, so that what leaves it begins like this.
LEAVING = re.compile(r"\[([^\]]+)\]\(\.\./([^)\s#]+)\)")


def source_url(project: Path = ROOT / "pyproject.toml") -> str | None:
    """The repository's address, if the project states it."""
    urls = tomllib.loads(project.read_text(encoding="utf-8"))["project"].get("urls", {})
    return urls["Source"].rstrip("/") if "Source" in urls else None


def rewrite(markdown: str, url: str | None) -> str:
    """The page with its links into the repository as the site needs them; fenced blocks stay as they are."""

    def target(link: re.Match[str]) -> str:
        text, path = link.groups()
        if url is not None:
            kind = "tree" if (ROOT / path).is_dir() else "blob"
            return f"[{text}]({url}/{kind}/main/{path})"
        return text if "`" in text else f"{text} (`{path}`)"

    parts = FENCED.split(markdown)
    return "".join(part if index % 2 else LEAVING.sub(target, part) for index, part in enumerate(parts))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return rewrite(markdown, source_url())
