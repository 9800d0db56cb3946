"""Fields of the struct that a kernel's C function gets for each layer: kernels declare, `codegen` renders.

A kernel declares all fields that its function can have, in the order of the struct. Those that a function
does have are the parameters of its calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from microfold.support.frozen import frozen


@frozen
class Field:
    """A field of a layer struct.

    Attributes:
        comment: what it is, with its unit, where the name does not say it; of constants the order.
        c_type: empty for what the values give: ``int32_t``, ``float``, or a pointer to elements or records.
            A pointer that may be to nothing declares it. Integers that declare none may become narrower.
    """

    name: str
    comment: str = ""
    c_type: str = ""


Fields = tuple[Field, ...]


def declare(*fields: str | Field) -> Fields:
    """A declaration in which fields that need no comment are names."""
    return tuple(Field(field) if isinstance(field, str) else field for field in fields)


def describe(fields: Fields, **comments: str) -> Fields:
    """The same fields, some of which have comments that depend on a function's compile-time choices."""
    unknown = comments.keys() - {field.name for field in fields}
    if unknown:
        raise ValueError(f"comments must be those of declared fields; {', '.join(sorted(unknown))} are none")
    return tuple(replace(field, comment=comments.get(field.name, field.comment)) for field in fields)


def inner_fields(member: str, fields: Iterable[Field]) -> Fields:
    """The fields of the layer of another function, whose struct is a member of this one.

    The names of their parameters begin with the member's and a dot.
    """
    return tuple(replace(field, name=f"{member}.{field.name}") for field in fields)
