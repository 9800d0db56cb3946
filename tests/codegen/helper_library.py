"""The helpers of a program, compiled for this machine and called with numpy arrays."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cffi

from microfold.codegen.emit import emit
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.types import Array, TensorType
from microfold.ops.movement.reshape import Reshape
from microfold.program import Program
from tests.codegen.builds import STRICT
from tests.codegen.toolchain import run, write
from tests.needs import need_tools

_FUNCTION = re.compile(r"^static inline (.*?\*?)(\w+)\(([^)]*)\)$", re.MULTILINE | re.DOTALL)


def view_graph(input_type: TensorType, shape: tuple[int, ...], name: str = "net") -> Graph:
    """A graph that only shows its input as an output of another shape."""
    x = Value("x", input_type)
    view = make_node(Reshape(shape), [x], ["y"])
    return Graph(name, (x,), view.outputs, (view,), {})


def helper_functions(header: str) -> dict[str, tuple[str, str]]:
    """Name to result and parameters, of all functions of a helper header."""
    return {name: (result.strip(), parameters) for result, name, parameters in _FUNCTION.findall(header)}


def prototypes(header: str) -> list[str]:
    """Prototypes of functions ``call_…`` that the linker sees, each for a helper."""
    functions = helper_functions(header).items()
    return [f"{result} call_{name}({parameters})" for name, (result, parameters) in functions]


def wrappers(header: str) -> str:
    """Definitions of these functions, which call the helpers."""
    text = ""
    for prototype, (name, (result, parameters)) in zip(
        prototypes(header), helper_functions(header).items(), strict=True
    ):
        arguments = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
        call = f"{'return ' * (result != 'void')}{name}({arguments});"
        text += f"{prototype};\n{prototype}\n{{\n    {call}\n}}\n"
    return text


class HelperLibrary:
    """Helpers, which are attributes: C functions that take numpy arrays in the place of pointers.

    Args:
        flags: of GCC, besides the strictest warnings.
    """

    def __init__(self, program: Program, folder: Path, flags: tuple[str, ...] = ("-O2",)):
        need_tools("cc")
        files = emit(program)
        self.prefix = program.name
        header = files[f"{program.name}_helpers.h"]
        write(folder, files)
        include = f'#include "{program.name}_helpers.h"\n'
        (folder / "wrappers.c").write_text(include + wrappers(header))
        self._ffi = cffi.FFI()
        for prototype in prototypes(header):
            self._ffi.cdef(f"{prototype};")
        library = folder / "libhelpers.so"
        run(["cc", *STRICT, *flags, "-fPIC", "-shared", folder / "wrappers.c", "-o", library])
        self.functions = frozenset(n.removeprefix(f"{program.name}_") for n in helper_functions(header))
        self._library: Any = self._ffi.dlopen(str(library))

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Call a helper by its name without the model's prefix; strings are bytes."""
        given = [self._pointer(each) if hasattr(each, "ctypes") else each for each in arguments]
        result = getattr(self._library, f"call_{self.prefix}_{name}")(*given)
        return self._ffi.string(result) if isinstance(result, self._ffi.CData) else result

    def _pointer(self, array: Array) -> Any:
        assert array.flags.c_contiguous
        types = {"f": "float", "i": f"int{8 * array.itemsize}_t", "u": f"uint{8 * array.itemsize}_t"}
        return self._ffi.cast(f"{types[array.dtype.kind]} *", array.ctypes.data)
