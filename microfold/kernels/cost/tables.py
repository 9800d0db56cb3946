"""Tables of a TOML file, each parsed at its first access, because most builds need few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from microfold.support.toml import parse_toml

_Row = TypeVar("_Row")


def read_file(path: Path) -> tuple[Mapping[str, Any], str]:
    """Return the table ``core`` of a data file, which comes first, and the text of all others."""
    text = path.read_text(encoding="utf-8")
    rows = text.index("\n\n[", text.index("[core]"))
    return parse_toml(text[:rows])["core"], text[rows:]


class Tables(Mapping[str, _Row]):
    """Rows by table name, parsed on demand.

    Args:
        text: tables, each after an empty line; names without brackets.
        read: converts a table to a row.
    """

    def __init__(self, text: str, read: Callable[[Mapping[str, Any]], _Row]):
        self._read = read
        self._texts = dict(part.split("]\n", 1) for part in text.split("\n[")[1:])
        self._parsed: dict[str, _Row] = {}

    def __getitem__(self, name: str) -> _Row:
        if name not in self._parsed:
            self._parsed[name] = self._read(parse_toml(self._texts[name]))
        return self._parsed[name]

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)
