"""`report.schema.json` as tables: what docs/report-json.md has of it."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]


def tables(schema: JSON) -> str:
    """The report's fields, then those of every part."""
    report, *parts = schema["$defs"].items()
    return "\n\n".join([_table(report[1]), *(f"## {name}\n\n{_table(part)}" for name, part in parts)])


def _table(part: JSON) -> str:
    rows = [
        (
            f"`{name}`",
            _type(field),
            field["description"] + ("" if name in part["required"] else "; may be missing"),
        )
        for name, field in part["properties"].items()
    ]
    lines = ["| field | type | |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([part["description"], "", *lines])


def _type(field: JSON) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(map(_type, field["anyOf"]))
    return f"array of {_type(field['items'])}" if field["type"] == "array" else field["type"]
