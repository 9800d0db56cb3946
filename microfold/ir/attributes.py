"""Attributes of operators in the text form: the fields with their declared types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, get_type_hints

from msgspec.structs import fields

from microfold.ir.layout import NHWC
from microfold.ir.op import Op
from microfold.ir.types import ElementType, TensorType

# A field with this name and type ElementType is the element type of the first result. A field with the second
# name and type holds the types of all results. The text form derives both from the declared results.
RESULT_FIELD = "out"
RESULTS_FIELD = ("results", tuple[TensorType, ...])
# A field with this name is an image layout. Its default is NHWC.
LAYOUT_FIELD = "layout"


@cache
def attribute_types(op_type: type[Op]) -> dict[str, Any]:
    """Return the declared type of each attribute, in order."""
    hints = get_type_hints(op_type)
    return {name: hints[name] for name in op_type.__struct_fields__}


@cache
def required_attributes(op_type: type[Op]) -> tuple[str, ...]:
    """Return the names of the attributes without a default, in order."""
    return tuple(field.name for field in fields(op_type) if field.required)


def from_results(name: str, declared: Any, results: Sequence[TensorType]) -> Any:
    """Return the value of an attribute that follows from the node's results; None if none does."""
    if (name, declared) == RESULTS_FIELD:
        return tuple(results)
    return results[0].element if results and name == RESULT_FIELD and declared is ElementType else None


def is_usual_layout(name: str, value: Any) -> bool:
    """Return whether the attribute is the layout that the text leaves out."""
    return name == LAYOUT_FIELD and value == NHWC
