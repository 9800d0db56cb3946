"""Fields of the layer struct of a kernel's C function. Kernels declare them, and `codegen` renders them.

A kernel declares all fields that its function can have, in the order of the struct. A function has only the
fields that are parameters of its calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace


class Field(Struct, frozen=True):
    """A field of a layer struct.

    Attributes:
        comment: meaning and unit, unless the name says both; layout of a constant.
        c_type: C type. If empty, it follows from the values: ``int32_t``, ``float``, or a pointer to elements
            or records. A pointer that can be null must declare its type. Integers without a declared type
            may become narrower.
    """

    name: str
    comment: str = ""
    c_type: str = ""


Fields = tuple[Field, ...]


def declare(*fields: str | Field) -> Fields:
    """Return the fields of a declaration, in which a field without comment is only a name."""
    return tuple(Field(field) if isinstance(field, str) else field for field in fields)


def describe(fields: Fields, **comments: str) -> Fields:
    """Return the fields with some comments replaced, for comments that depend on compile-time choices.

    Raises:
        ValueError: a comment names a field that is not declared.
    """
    unknown = comments.keys() - {field.name for field in fields}
    if unknown:
        raise ValueError(f"comments must be for declared fields; not declared: {', '.join(sorted(unknown))}")
    return tuple(replace(field, comment=comments.get(field.name, field.comment)) for field in fields)


def inner_fields(member: str, fields: Iterable[Field]) -> Fields:
    """Return the fields of another function's layer struct that is a member of this one.

    The names of their parameters begin with the member's name and a dot.
    """
    return tuple(replace(field, name=f"{member}.{field.name}") for field in fields)
