"""The C functions of a program's kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass

from microfold.codegen.environment import environment
from microfold.kernels.kernel import Constant, Function
from microfold.program import Program


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


def render_functions(program: Program) -> dict[Function, RenderedFunction]:
    """Every distinct function of the program, in order of its first use.

    Its name is the kernel's, numbered where functions of one kernel differ.
    """
    numbers: dict[str, list[Function]] = {}
    fields: dict[Function, set[str]] = {}
    for layer in program.layers:
        function = layer.call.function
        if function not in fields:
            numbers.setdefault(function.name, []).append(function)
        plain = {name for name, value in layer.call.parameters.items() if not isinstance(value, Constant)}
        fields[function] = fields.get(function, plain) & plain
    rendered: dict[Function, RenderedFunction] = {}
    for function, candidates in fields.items():
        same = numbers[function.name]
        name = function.name if len(same) == 1 else f"{function.name}_{same.index(function) + 1}"
        folder = function.library.templates if function.library is not None else None
        text = (
            environment(folder)
            .get_template(function.template)
            .render(name=name, macro=program.name.upper(), **dict(function.spec))
        )
        rendered[function] = RenderedFunction(name, *_without_unread_fields(text.strip(), name, candidates))
    return rendered


def _without_unread_fields(text: str, name: str, candidates: set[str]) -> tuple[str, frozenset[str]]:
    """Leave out of the layer struct what the code never reads: it would be in flash for every layer."""
    struct = re.search(rf"typedef struct {{\n((?: .*\n|\n)*)}} {name}_layer;\n", text)
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
