"""HTML representations of objects for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table. All texts are escaped, because names come from models.

    Args:
        columns: headings of the columns.
    """
    lines = [_row("td", map(_shown, row)) for row in rows]
    head = f"<caption>{html.escape(title)}</caption><thead>{_row('th', columns)}</thead>"
    return f"<table>{head}<tbody>{''.join(lines)}</tbody></table>"


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _shown(cell: object) -> str:
    """Return the text of a cell: numbers have thousands separators, None is an unknown number."""
    if cell is None:
        return "unknown"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
