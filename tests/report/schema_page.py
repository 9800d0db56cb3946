"""`report.schema.json` as tables: what docs/report-json.md has of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

JSON = dict[str, Any]


def tables(schema: JSON) -> str:
    """The report's fields, then those of every part that has a name."""
    parts = [_table(schema)]
    parts += [f"## {name}\n\n{_table(part)}" for name, part in schema["$defs"].items()]
    return "\n\n".join(parts)


def _table(part: JSON) -> str:
    rows = ["| field | type | |", "|---|---|---|"]
    return "\n".join([*rows, *(f"| {' | '.join(row)} |" for row in _rows(part, ""))])


def _rows(part: JSON, prefix: str) -> Iterator[tuple[str, str, str]]:
    """One per field; those of objects without a name follow theirs."""
    for name, field in part["properties"].items():
        notes = [] if name in part["required"] else ["may be missing"]
        notes += [field["description"]] if "description" in field else []
        path = f"{prefix}{name}"
        yield f"`{path}`", _type(field), "; ".join(notes)
        yield from _fields(field, path)


def _fields(field: JSON, path: str) -> Iterator[tuple[str, str, str]]:
    if "properties" in field:
        yield from _rows(field, f"{path}.")
    elif "items" in field:
        yield from _fields(field["items"], f"{path}[]")
    for option in field.get("anyOf", ()):
        yield from _fields(option, path)


def _type(field: JSON) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    if "const" in field:
        return str(field["const"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(map(_type, field["anyOf"]))
    if field["type"] == "array":
        return f"array of {_type(field['items'])}"
    return field["type"] if isinstance(field["type"], str) else " or ".join(field["type"])
