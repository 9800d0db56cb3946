"""The C functions of a program's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from microfold.codegen.environment import render
from microfold.codegen.heads import parameter_types
from microfold.codegen.names import private_name
from microfold.codegen.structs import Struct, definitions, layer_structs
from microfold.kernels.call import CFunction, KernelCall
from microfold.program import Program


@dataclass(frozen=True)
class RenderedFunction:
    """A kernel function as C.

    Attributes:
        name: its C name.
        text: the layer struct, if it has one, and the function.
        headers: standard headers that it needs.
        structs: the layer struct, behind those of its members that are structs; empty if it has none.
        parameters: the types of its parameters, without the layer.
    """

    name: str
    text: str
    headers: frozenset[str]
    structs: tuple[Struct, ...]
    parameters: tuple[str, ...]


def render_functions(program: Program) -> dict[CFunction, RenderedFunction]:
    """Every distinct function of the program, in order of its first use.

    Its name is the model's and the kernel's, numbered where functions of one kernel differ.
    """
    numbers: dict[str, list[CFunction]] = {}
    calls: dict[CFunction, list[KernelCall]] = {}
    for layer in program.calls:
        function = layer.call.function
        if function not in calls:
            numbers.setdefault(function.name, []).append(function)
        calls.setdefault(function, []).append(layer.call)
    rendered: dict[CFunction, RenderedFunction] = {}
    for function in calls:
        same = numbers[function.name]
        number = f"_{same.index(function) + 1}" if len(same) > 1 else ""
        name = private_name(program.name, f"{function.name}{number}")
        narrow = program.options.optimize != "speed" and function.library is None
        rendered[function] = render_function(name, program.name.upper(), calls[function], narrow=narrow)
    return rendered


def render_function(
    name: str, macro: str, calls: Sequence[KernelCall], *, narrow: bool = False
) -> RenderedFunction:
    """One function.

    Args:
        macro: prefix of the model's macros.
        calls: all calls of the function; at least one.
        narrow: see `layer_structs`.
    """
    function = calls[0].function
    folder = function.templates
    if folder is None and function.library is not None:
        folder = function.library.templates
    variables = {"name": name, "macro": macro, "parameter_types": parameter_types}
    rendered = render(function.template, variables | dict(function.spec), folder)
    structs = layer_structs(name, calls, narrow=narrow)
    text = f"{definitions(structs)}\n\n{rendered.text.strip()}".strip()
    parameters = parameter_types(rendered.text, name)[1 if structs else 0 :]
    return RenderedFunction(name, text, rendered.uses, structs, parameters)
