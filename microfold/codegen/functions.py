"""The C functions of a program's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from microfold.codegen.environment import environment
from microfold.codegen.structs import layer_structs
from microfold.kernels.call import CFunction, KernelCall
from microfold.program import Program


@dataclass(frozen=True)
class RenderedFunction:
    """A kernel function as C.

    Attributes:
        name: its C name.
        text: the layer struct, if it has one, and the function.
    """

    name: str
    text: str


def render_functions(program: Program) -> dict[CFunction, RenderedFunction]:
    """Every distinct function of the program, in order of its first use.

    Its name is the kernel's, numbered where functions of one kernel differ.
    """
    numbers: dict[str, list[CFunction]] = {}
    calls: dict[CFunction, list[KernelCall]] = {}
    for layer in program.layers:
        function = layer.call.function
        if function not in calls:
            numbers.setdefault(function.name, []).append(function)
        calls.setdefault(function, []).append(layer.call)
    rendered: dict[CFunction, RenderedFunction] = {}
    for function in calls:
        same = numbers[function.name]
        name = function.name if len(same) == 1 else f"{function.name}_{same.index(function) + 1}"
        narrow = program.options.optimize == "size" and function.library is None
        text = render_function(name, program.name.upper(), calls[function], narrow=narrow)
        rendered[function] = RenderedFunction(name, text)
    return rendered


def render_function(name: str, macro: str, calls: Sequence[KernelCall], *, narrow: bool = False) -> str:
    """The layer struct of a function, if it has one, and the function.

    Args:
        macro: prefix of the model's macros.
        calls: all calls of the function; at least one.
        narrow: see `layer_structs`.
    """
    function = calls[0].function
    folder = function.library.templates if function.library is not None else None
    template = environment(folder).get_template(function.template)
    text = template.render(name=name, macro=macro, **dict(function.spec)).strip()
    return f"{layer_structs(name, calls, narrow=narrow)}\n\n{text}".strip()
