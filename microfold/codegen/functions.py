"""C functions of a program's kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from microfold.codegen.common_fields import common_fields, put_in_code, without_fields
from microfold.codegen.environment import render
from microfold.codegen.heads import parameter_types
from microfold.codegen.names import private_name
from microfold.codegen.structs import CStruct, definitions, layer_structs
from microfold.kernels.call import CFunction, KernelCall
from microfold.program import Program


class RenderedFunction(Struct, frozen=True):
    """A kernel function in C.

    Attributes:
        name: C name.
        code: definition of the function.
        headers: standard headers that the code needs.
        structs: structs of members, then the layer struct; empty if the function has no layer struct.
        parameters: types of the parameters, without the layer struct.
    """

    name: str
    code: str
    headers: frozenset[str]
    structs: tuple[CStruct, ...]
    parameters: tuple[str, ...]

    @property
    def text(self) -> str:
        """Definitions of the layer struct, if any, and of the function."""
        return f"{definitions(self.structs)}\n\n{self.code}".strip()


def render_functions(
    program: Program, elsewhere: Collection[CFunction] = ()
) -> dict[CFunction, RenderedFunction]:
    """Return every distinct function of the program, in order of first use.

    Names consist of the model's and the kernel's name, and a number if a kernel has several functions.

    Args:
        elsewhere: functions that other files define.
    """
    calls = [layer.call for layer in program.calls if layer.call.function not in elsewhere]
    return render_named(program.name, program.name.upper(), calls, narrow=program.options.optimize != "speed")


def render_named(
    prefix: str, macro: str, calls: Iterable[KernelCall], *, narrow: bool
) -> dict[CFunction, RenderedFunction]:
    """Return the functions of calls, in order of first use.

    Args:
        prefix: prefix of the names.
        macro: prefix of the macros.
        narrow: see `layer_structs`; ignored for functions that call libraries.
    """
    numbers: dict[str, list[CFunction]] = {}
    by_function: dict[CFunction, list[KernelCall]] = {}
    for call in calls:
        if call.function not in by_function:
            numbers.setdefault(call.function.name, []).append(call.function)
        by_function.setdefault(call.function, []).append(call)
    rendered: dict[CFunction, RenderedFunction] = {}
    for function, own in by_function.items():
        same = numbers[function.name]
        number = f"_{same.index(function) + 1}" if len(same) > 1 else ""
        name = private_name(prefix, f"{function.name}{number}")
        rendered[function] = render_function(name, macro, own, narrow=narrow and function.library is None)
    return rendered


def render_function(
    name: str, macro: str, calls: Sequence[KernelCall], *, narrow: bool = False
) -> RenderedFunction:
    """Render one function.

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
    common = common_fields(name, calls, rendered.text) if function.library is None else {}
    structs = layer_structs(name, without_fields(calls, common), narrow=narrow)
    parameters = parameter_types(rendered.text, name)[1 if structs else 0 :]
    code = put_in_code(rendered.text, common).strip()
    return RenderedFunction(name, code, rendered.uses, structs, parameters)
