"""Layer struct of a kernel function: the declared fields for which its calls have parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from microfold.codegen.environment import environment
from microfold.codegen.literals import c_type
from microfold.kernels.call import Constant, KernelCall, Parameter
from microfold.kernels.fields import Field

# Types narrower than int32_t with their ranges, the narrowest first; unsigned types need less code to load.
_NARROW = {
    "uint8_t": (0, 255),
    "int8_t": (-128, 127),
    "uint16_t": (0, 65535),
    "int16_t": (-32768, 32767),
}


class Member(Struct, frozen=True):
    """A member of a struct.

    Attributes:
        type: C text before the name.
    """

    name: str
    type: str
    comment: str

    @property
    def declaration(self) -> str:
        return f"{self.type}{self.name}" if self.type.endswith("*") else f"{self.type} {self.name}"


class CStruct(Struct, frozen=True):
    """C struct with its members in order."""

    name: str
    members: tuple[Member, ...]


def definitions(structs: Sequence[CStruct]) -> str:
    """Return the definitions of structs in C."""
    return environment().get_template("model/layer_struct.j2").render(structs=structs).strip()


def layer_structs(name: str, calls: Sequence[KernelCall], *, narrow: bool) -> tuple[CStruct, ...]:
    """Return structs of members, then the function's layer struct; empty if the function has no fields.

    Args:
        name: C name of the function.
        calls: all calls of the function; at least one.
        narrow: store integers in types just large enough for all calls, after all other members, the widest
            first. C converts them to int32_t when they are read. Inner structs keep int32_t, because
            functions write to them.

    Raises:
        ValueError: the calls have different parameters.
    """
    function = calls[0].function
    held: dict[str, list[Parameter]] = {}
    for call in calls:
        if call.parameters.keys() != calls[0].parameters.keys():
            different = ", ".join(sorted(call.parameters.keys() ^ calls[0].parameters.keys()))
            raise ValueError(
                f"{function.name}: all calls must have the same parameters; some have {different}"
            )
        for field, value in call.parameters.items():
            held.setdefault(field, []).append(value)
    if not held:
        # C has no empty structs.
        return ()
    inner = _inner_layers(held)
    structs = [
        CStruct(f"{name}_{part}_layer", tuple(_members(name, function.fields, held, inner, f"{part}.")))
        for part in (field.name for field in function.fields)
        if part in inner
    ]
    members = _members(name, function.fields, held, inner)
    if narrow:
        members = _narrowed(members, held, function.fields)
    structs.append(CStruct(f"{name}_layer", tuple(members)))
    return tuple(structs)


def _inner_layers(held: Iterable[str]) -> set[str]:
    """Return the fields that are layer structs of other functions: the prefixes of dotted names."""
    return {name.rpartition(".")[0] for name in held if "." in name}


def _members(
    function: str,
    fields: Iterable[Field],
    held: Mapping[str, Sequence[Parameter]],
    inner: Collection[str],
    prefix: str = "",
) -> list[Member]:
    """Return the members for fields whose names are the prefix and one word, in declared order."""
    members: list[Member] = []
    for field in fields:
        name = field.name.removeprefix(prefix)
        if not field.name.startswith(prefix) or "." in name:
            continue
        if field.name in held:
            c_type = field.c_type or _type(f"{function}.{field.name}", held[field.name])
            members.append(Member(name, c_type, field.comment))
        elif field.name in inner:
            members.append(Member(name, f"{function}_{name}_layer", field.comment))
    return members


def _type(name: str, values: Sequence[Parameter]) -> str:
    """Return the C type of the values of a field without a declared type."""
    types = {_value_type(value) for value in values}
    if len(types) > 1:
        raise ValueError(f"{name}: all calls must use one C type; got {', '.join(sorted(types))}")
    return types.pop()


def _value_type(value: Parameter) -> str:
    if value is None:
        raise ValueError("the field of a pointer that may be null must declare its C type")
    if isinstance(value, Constant):
        return f"const {value.record or c_type(value.array)} *"
    return "float" if isinstance(value, float) else "int32_t"


def _narrowed(
    members: Sequence[Member], held: Mapping[str, Sequence[Parameter]], fields: Iterable[Field]
) -> list[Member]:
    """Return the members with integers in types that are just large enough, after all other members.

    A field with a declared type keeps it.
    """
    declared = {field.name for field in fields if field.c_type}
    kept: list[Member] = []
    narrow: dict[str, list[Member]] = {name: [] for name in _NARROW}
    for member in members:
        is_open = member.type == "int32_t" and member.name not in declared
        narrowest = _narrowest(held[member.name]) if is_open else ""
        if narrowest:
            narrow[narrowest].append(replace(member, type=narrowest))
        else:
            kept.append(member)
    return [*kept, *(member for same in reversed(narrow.values()) for member in same)]


def _narrowest(values: Sequence[Parameter]) -> str:
    """Return the narrowest type that holds all values; empty if only int32_t does."""
    integers = [value for value in values if isinstance(value, int)]
    for name, (low, high) in _NARROW.items():
        if low <= min(integers) and max(integers) <= high:
            return name
    return ""
