"""The C functions of a program's kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from microfold.codegen.environment import environment
from microfold.kernels.call import CFunction, Constant
from microfold.program import Program

# Types narrower than int32_t and what they hold, the narrowest first; unsigned ones load in less code.
_NARROW = {
    "uint8_t": (0, 255),
    "int8_t": (-128, 127),
    "uint16_t": (0, 65535),
    "int16_t": (-32768, 32767),
}


@dataclass(frozen=True)
class RenderedFunction:
    """A kernel function as C.

    Attributes:
        name: its C name.
        text: the layer struct and the function.
        unread: fields of the kernel's parameters that this function has no use for; its struct lacks them.
    """

    name: str
    text: str
    unread: frozenset[str]


def render_functions(program: Program) -> dict[CFunction, RenderedFunction]:
    """Every distinct function of the program, in order of its first use.

    Its name is the kernel's, numbered where functions of one kernel differ.
    """
    numbers: dict[str, list[CFunction]] = {}
    fields: dict[CFunction, set[str]] = {}
    values: dict[CFunction, dict[str, list[int]]] = {}
    for layer in program.layers:
        function = layer.call.function
        if function not in fields:
            numbers.setdefault(function.name, []).append(function)
        plain = {name for name, value in layer.call.parameters.items() if not isinstance(value, Constant)}
        fields[function] = fields.get(function, plain) & plain
        for name, value in layer.call.parameters.items():
            if isinstance(value, int):
                values.setdefault(function, {}).setdefault(name, []).append(value)
    rendered: dict[CFunction, RenderedFunction] = {}
    for function, candidates in fields.items():
        same = numbers[function.name]
        name = function.name if len(same) == 1 else f"{function.name}_{same.index(function) + 1}"
        folder = function.library.templates if function.library is not None else None
        text = (
            environment(folder)
            .get_template(function.template)
            .render(name=name, macro=program.name.upper(), **dict(function.spec))
        )
        text, unread = _without_unread_fields(text.strip(), name, candidates)
        if program.options.optimize == "size" and function.library is None:
            text = _with_narrow_fields(text, name, values.get(function, {}))
        rendered[function] = RenderedFunction(name, text, unread)
    return rendered


def _layer_struct(text: str, name: str) -> re.Match[str] | None:
    """The definition of a layer struct; its group 1 has the members."""
    return re.search(rf"typedef struct {{\n((?: .*\n|\n)*)}} {name}_layer;\n", text)


def _with_narrow_fields(text: str, name: str, values: Mapping[str, Sequence[int]]) -> str:
    """Integer members in types that are just large enough, behind all others, the widest first.

    Reading them, C makes int32_t of all.

    Args:
        values: what the members are in the layers.
    """
    struct = _layer_struct(text, name)
    if struct is None:
        return text
    narrow: dict[str, list[str]] = {c_type: [] for c_type in _NARROW}

    def take(member: re.Match[str]) -> str:
        known = values.get(member[1], ())
        for c_type, (low, high) in _NARROW.items():
            if known and low <= min(known) and max(known) <= high:
                narrow[c_type].append(member[0].replace("int32_t", c_type, 1))
                return ""
        return member[0]

    members = re.sub(r" +int32_t (\w+);.*\n", take, struct[1])
    members += "".join(line for lines in reversed(narrow.values()) for line in lines)
    return text[: struct.start(1)] + members + text[struct.end(1) :]


def _without_unread_fields(text: str, name: str, candidates: set[str]) -> tuple[str, frozenset[str]]:
    """Leave out of the layer struct what the code never reads: it would be in flash for every layer."""
    struct = _layer_struct(text, name)
    if struct is None:
        return text, frozenset()
    code = text[: struct.start()] + text[struct.end() :]
    read = set(re.findall(r"(?:->|\.) *(\w+)", code))
    members = struct.group(1)
    unread: set[str] = set()
    for field in sorted(candidates - read):
        members, count = re.subn(rf" +\w+ {field};.*\n", "", members)
        if count:
            unread.add(field)
    if not members.strip():
        # C has no empty structs.
        return text, frozenset()
    return text[: struct.start(1)] + members + text[struct.end(1) :], frozenset(unread)
