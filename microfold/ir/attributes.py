"""Attributes of operators as the text form sees them: the dataclass fields with their declared types."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, get_type_hints

from microfold.ir.op import Op
from microfold.ir.types import ElementType

# A field of this name and of type ElementType is the element type of the first result. The text form takes it
# from there.
RESULT_FIELD = "out"


@cache
def attribute_types(op_type: type[Op]) -> dict[str, Any]:
    """Each attribute's declared type, in order."""
    hints = get_type_hints(op_type)
    return {field.name: hints[field.name] for field in dataclasses.fields(op_type)}


def is_result_field(name: str, declared: Any) -> bool:
    """The attribute is left out of the text where it equals the element type of the node's first result."""
    return name == RESULT_FIELD and declared is ElementType
