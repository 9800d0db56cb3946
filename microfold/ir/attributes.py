"""Attributes of operators as the text form sees them: the dataclass fields with their declared types."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import Any, get_type_hints

from microfold.ir.layout import NHWC
from microfold.ir.op import Op
from microfold.ir.types import ElementType, TensorType

# A field of this name and of type ElementType is the element type of the first result; one of this name and
# type, the types of all results. The text form takes them from there.
RESULT_FIELD = "out"
RESULTS_FIELD = ("results", tuple[TensorType, ...])
# A field of this name is a layout of images; its default is NHWC.
LAYOUT_FIELD = "layout"


@cache
def attribute_types(op_type: type[Op]) -> dict[str, Any]:
    """Each attribute's declared type, in order."""
    hints = get_type_hints(op_type)
    return {field.name: hints[field.name] for field in dataclasses.fields(op_type)}


def from_results(name: str, declared: Any, results: Sequence[TensorType]) -> Any:
    """What an attribute is where the text leaves it out, by the node's results; None: nowhere."""
    if (name, declared) == RESULTS_FIELD:
        return tuple(results)
    return results[0].element if results and name == RESULT_FIELD and declared is ElementType else None


def is_usual_layout(name: str, value: Any) -> bool:
    """The attribute is the layout that the text leaves out."""
    return name == LAYOUT_FIELD and value == NHWC
