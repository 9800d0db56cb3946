"""JSON Schema of the reports, generated from their typed definitions."""

from __future__ import annotations

import json
from inspect import cleandoc
from typing import Any

import msgspec

from microfold.reporting.group_schema import GroupReport
from microfold.reporting.schema import BuildReport

# Files next to this module, each with the report that it describes.
FILES: dict[str, type[msgspec.Struct]] = {
    "report.schema.json": BuildReport,
    "group.schema.json": GroupReport,
}


def json_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of written reports: all fields are known, and only unset ones may be missing."""
    schema = msgspec.json.schema(kind)
    for part in schema["$defs"].values():
        fields = part["properties"]
        # Fields with a default are always written. Unset fields have no default in a schema.
        part["required"] = [n for n, f in fields.items() if n in part["required"] or "default" in f]
        part["additionalProperties"] = False
        part["description"] = cleandoc(part["description"])
        for field in fields.values():
            field.pop("default", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text(kind: type[msgspec.Struct]) -> str:
    """Return the content of a schema file, with one field per line."""
    schema = json_schema(kind)
    parts: list[str] = []
    for name, part in schema.pop("$defs").items():
        fields = [f'  "{key}": {json.dumps(value)}' for key, value in part.pop("properties").items()]
        head = json.dumps(part)[:-1]
        parts.append(f'"{name}": {head}, "properties": {{\n' + ",\n".join(fields) + "\n}}")
    return json.dumps(schema)[:-1] + ', "$defs": {\n' + ",\n".join(parts) + "\n}}\n"
